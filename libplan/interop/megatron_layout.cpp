// A layout becomes one letter per layer of Megatron's and bars between its stages; cuts stand at the bars.
#include "libplan/interop/megatron_layout.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "libplan/request/shapes.h"
#include "libprofile/core/error.h"
#include "libprofile/core/index.h"
#include "libprofile/core/text.h"

namespace pp::plan {
namespace {

[[noreturn]] void refuse(const std::string& layout, const std::string& why) {
  throw Error(ErrorKind::usage, "--layout " + layout + ": " + why);
}

/// The layout without repetitions.
class Unrolled {
 public:
  explicit Unrolled(const std::string& layout) : layout_(layout), text_(layout) {
    std::erase(text_, ',');
    std::erase(text_, ' ');
  }

  std::string letters() {
    std::string letters;
    while (next_ < text_.size()) append(letters, take());
    return letters;
  }

 private:
  /// A letter, or a group in brackets.
  std::string take() {
    const char letter = text_[next_++];
    if (letter != '(') {
      if (std::string_view("EtmL|").find(letter) == std::string_view::npos)
        refuse(layout_, "'" + std::string(1, letter) + "' is none of E, t, L, |, ( ), *n");
      return std::string(1, letter);
    }
    std::string group;
    while (next_ < text_.size() && text_[next_] != ')') {
      if (text_[next_] == '(') refuse(layout_, "Megatron knows no brackets within brackets");
      append(group, take());
    }
    if (next_ == text_.size()) refuse(layout_, "a bracket is not closed");
    ++next_;
    return group;
  }

  /// `part`, as often as the `*n` behind it says.
  void append(std::string& letters, const std::string& part) {
    constexpr int kMost = 10'000;
    int times = 1;
    if (next_ < text_.size() && text_[next_] == '*') {
      const char* const end = text_.data() + text_.size();
      const auto [behind, error] = std::from_chars(text_.data() + next_ + 1, end, times);
      if (error != std::errc() || times < 1 || times > kMost)
        refuse(layout_, "behind * stands a number from 1 to " + std::to_string(kMost));
      next_ = at(static_cast<int>(behind - text_.data()));
    }
    if (letters.size() + part.size() * at(times) > at(kMost))
      refuse(layout_, "more than " + std::to_string(kMost) + " letters");
    for (int i = 0; i < times; ++i) letters += part;
  }

  const std::string& layout_;
  std::string text_;
  std::size_t next_ = 0;
};

/// E and L once each, at the ends.
void check_ends(const std::string& layout, const std::string& letters) {
  if (letters.find('m') != std::string::npos)
    refuse(layout, "m is a layer of multi-token prediction, which no profile has; leave it out");
  std::string layers = letters;
  std::erase(layers, '|');
  const bool ends = layers.size() >= 2 && layers.front() == 'E' && layers.back() == 'L';
  if (!ends || std::ranges::count(layers, 't') + 2 != std::ssize(layers))
    refuse(layout, "E stands first, L last, and t between them");
}

}  // namespace

std::vector<int> cuts_of_layout(const PlanGraph& graph, const std::string& layout) {
  const std::string letters = Unrolled(layout).letters();
  check_ends(layout, letters);
  const std::vector<std::vector<int>> blocks = numbered_blocks(graph);
  const auto wanted = std::ranges::count(letters, 't');
  if (wanted != std::ssize(blocks) || blocks.empty())
    refuse(layout,
           "it has " + counted(wanted, "block") + ", and the profile's model " + std::to_string(blocks.size()));
  std::vector<int> cuts;
  int next = 0;  // the first layer of the next letter's
  std::size_t block = 0;
  for (std::size_t i = 0; i < letters.size(); ++i) {
    if (letters[i] == '|') {
      if (i == 0 || letters[i - 1] == '|' || i + 1 == letters.size()) refuse(layout, "a stage has no layer");
      cuts.push_back(next);
    } else if (letters[i] == 'E') {
      next = blocks.front().front();
      if (next == 0) refuse(layout, "nothing stands in front of the model's first block");
    } else if (letters[i] == 't') {
      next = blocks[block].back() + 1;
      ++block;
    }
  }
  if (next == graph.size()) refuse(layout, "nothing stands behind the model's last block");
  return cuts;
}

}  // namespace pp::plan
