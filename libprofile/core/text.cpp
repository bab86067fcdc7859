#include "libprofile/core/text.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include "libprofile/core/error.h"

namespace pp {

namespace {

/// Insertions, deletions, replacements and swaps of neighbours between two words.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> cost(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = i + j;
        continue;
      }
      const std::size_t replaced = cost[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  }
  return cost.back().back();
}

}  // namespace

std::string in_small_letters(std::string_view text) {
  std::string small(text);
  std::ranges::transform(small, small.begin(), [](unsigned char c) { return std::tolower(c); });
  return small;
}

std::string nearest_name(std::string_view typed, std::span<const std::string> names) {
  const std::string word = in_small_letters(typed);
  std::string nearest;
  std::size_t least = std::max<std::size_t>(1, word.size() / 3) + 1;
  for (const std::string& name : names) {
    if (const std::size_t distance = edit_distance(word, in_small_letters(name)); distance < least) {
      least = distance;
      nearest = name;
    }
  }
  if (!nearest.empty() || word.size() < 4) return nearest;
  const auto begun =
      std::ranges::find_if(names, [&](const std::string& name) { return name.starts_with(typed); });
  return begun == names.end() ? "" : *begun;
}

std::string unknown_name(std::string_view word, std::span<const std::string> names, std::string_view kind) {
  const std::string near = nearest_name(word, names);
  std::string text = "unknown " + std::string(kind) + " \"" + std::string(word) + "\"; " +
                     (near.empty() ? "use" : "did you mean " + near + "? Use") + " one of ";
  for (std::size_t i = 0; i < names.size(); ++i) text += (i > 0 ? ", " : "") + names[i];
  return text;
}

std::string_view without_byte_order_mark(std::string_view text) {
  constexpr std::string_view kUtf8 = "\xEF\xBB\xBF";
  if (text.starts_with(kUtf8)) text.remove_prefix(kUtf8.size());
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF"))
    throw Error(ErrorKind::data, "is text in UTF-16; save it as UTF-8");
  return text;
}

}  // namespace pp
