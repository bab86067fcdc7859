#include "librun/options/limits.h"

#include <array>
#include <charconv>
#include <string>

#include "libprofile/core/error.h"

namespace pp::run {

void require(bool holds, std::string_view name, double value, std::string_view limit) {
  if (holds) return;
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  throw Error(ErrorKind::usage,
              std::string(name) + " = " + std::string(text.data(), end) + ": must be " + std::string(limit));
}

}  // namespace pp::run
