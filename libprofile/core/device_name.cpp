#include "libprofile/core/device_name.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <utility>

namespace pp {
namespace {

std::set<std::string> words_of(std::string_view text) {
  std::set<std::string> words;
  std::string word;
  for (const char c : text) {
    const auto letter = static_cast<unsigned char>(c);
    if (std::isalnum(letter) != 0) {
      word += static_cast<char>(std::tolower(letter));
    } else {
      words.insert(std::exchange(word, {}));
    }
  }
  words.insert(word);
  words.erase("");
  return words;
}

}  // namespace

std::string device_name(std::span<const Device> devices, const Device& device) {
  const auto elsewhere = [&](const Device& other) { return other.node != device.node; };
  const bool several = !device.node.empty() && std::ranges::any_of(devices, elsewhere);
  return (several ? device.node + "/" : "") + to_text(device);
}

bool names_model(std::string_view profiled, std::string_view model) {
  return std::ranges::includes(words_of(profiled), words_of(model));
}

}  // namespace pp
