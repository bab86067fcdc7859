#include "tests/lab/fuzz/mutate_text.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <vector>

namespace pp::fuzz {
namespace {

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

/// Another number in place of one run of digits; nothing where there is none.
void replace_number(Random& random, std::string& cell) {
  std::vector<std::size_t> starts;
  for (std::size_t i = 0; i < cell.size(); ++i) {
    if (is_digit(cell[i]) && (i == 0 || !is_digit(cell[i - 1]))) starts.push_back(i);
  }
  if (starts.empty()) return;
  const std::size_t begin = random.pick(starts);
  std::size_t end = begin;
  while (end < cell.size() && is_digit(cell[end])) ++end;
  cell.replace(begin, end - begin, random.one_in(3) ? extreme_number(random) : std::to_string(random.below(6)));
}

}  // namespace

std::string extreme_number(Random& random) {
  static constexpr std::array kNumbers{"0",
                                       "1",
                                       "2",
                                       "3",
                                       "5",
                                       "7",
                                       "-1",
                                       "1.5",
                                       "0.1",
                                       "1000",
                                       "65536",
                                       "1000000",
                                       "2147483647",
                                       "2147483648",
                                       "4294967296",
                                       "1e18",
                                       "1e300",
                                       "1e308",
                                       "1e-300",
                                       "-1e300",
                                       "9007199254740993",
                                       "-0.0",
                                       "4611686018427387904",
                                       "9223372036854775807",
                                       "9223372036854775808",
                                       "-9223372036854775808",
                                       "18446744073709551615",
                                       "99999999999999999999",
                                       "1e999"};
  return random.pick(kNumbers);
}

void mutate_bytes(Random& random, std::string& text) {
  if (text.empty()) return;
  const std::size_t at = random.below(text.size());
  const std::size_t length = std::min(text.size() - at, std::size_t{1} + random.below(16));
  switch (random.below(6)) {
    case 0: text[at] = static_cast<char>(random.next()); break;
    case 1: text[at] = static_cast<char>(text[at] ^ (1 << random.below(8))); break;
    case 2: text.erase(at, length); break;
    case 3: text.insert(random.below(text.size()), text.substr(at, length)); break;
    case 4: text.resize(at); break;
    case 5: text.replace(at, length, text.substr(random.below(text.size()), length)); break;
  }
}

void mutate_cells(Random& random, std::string& text, std::string_view separators) {
  std::vector<std::pair<std::size_t, std::size_t>> cells;  // begin, length
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find_first_of(separators, begin), text.size());
    cells.emplace_back(begin, end - begin);
    begin = end + 1;
  }
  const auto [begin, length] = random.pick(cells);
  const auto [other_begin, other_length] = random.pick(cells);
  const std::string cell = text.substr(begin, length);
  const std::string other = text.substr(other_begin, other_length);
  std::string changed = cell;
  switch (random.below(7)) {
    case 0: text.erase(begin, std::min(text.size() - begin, length + 1)); return;
    case 1: text.insert(begin, cell + separators[random.below(separators.size())]); return;
    case 2: text.replace(begin, length, other); return;
    case 3: text.erase(begin, length); return;
    case 4: text.insert(begin, 1, separators[random.below(separators.size())]); return;
    default: replace_number(random, changed); text.replace(begin, length, changed);
  }
}

}  // namespace pp::fuzz
