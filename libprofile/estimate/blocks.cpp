#include "libprofile/estimate/blocks.h"

#include <algorithm>
#include <cctype>
#include <string>

#include "libprofile/core/index.h"

namespace pp::profile {
namespace {

constexpr std::size_t kMostDigits = 6;

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

}  // namespace

int block_number(std::string_view layer) {
  for (std::size_t end = layer.find('.'); end != std::string_view::npos; end = layer.find('.')) {
    const std::string_view part = layer.substr(0, end);
    const auto digits =
        static_cast<std::size_t>(std::find_if_not(part.rbegin(), part.rend(), is_digit) - part.rbegin());
    if (digits > 0 && digits <= kMostDigits) return std::stoi(std::string(part.substr(part.size() - digits)));
    layer.remove_prefix(end + 1);
  }
  return -1;
}

std::vector<Block> blocks_of(const ModelGraph& model) {
  std::vector<Block> blocks;
  for (int l = 0; l < static_cast<int>(model.layers.size()); ++l) {
    const int number = block_number(model.layers[at(l)].name);
    if (number < 0) continue;
    if (!blocks.empty() && blocks.back().number == number && blocks.back().end == l) {
      blocks.back().end = l + 1;
    } else {
      blocks.push_back({number, l, l + 1});
    }
  }
  return blocks;
}

}  // namespace pp::profile
