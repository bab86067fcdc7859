#include "libplan/answer/typed_bytes.h"

#include <algorithm>
#include <cmath>

namespace pp::plan {

namespace {

/// `.5` of 500 thousandths; empty: of none.
std::string fraction_text(std::string digits) {
  while (!digits.empty() && digits.back() == '0') digits.pop_back();
  return digits.empty() ? "" : "." + digits;
}

}  // namespace

std::string typed_bytes(std::int64_t bytes) {
  constexpr std::int64_t kMega = 1'000'000;
  const auto decimal = [&](std::int64_t unit, const char* name) -> std::string {
    if (bytes < unit || bytes % (unit / 1000) != 0) return {};
    return std::to_string(bytes / unit) +
           fraction_text(std::to_string(1000 + bytes % unit / (unit / 1000)).substr(1)) + name;
  };
  for (const auto& [unit, name] :
       {std::pair{kMega * kMega, "TB"}, std::pair{kMega * 1000, "GB"}, std::pair{kMega, "MB"}}) {
    if (const std::string text = decimal(unit, name); !text.empty()) return text;
  }
  for (const auto& [shift, name] : {std::pair{40, "TiB"}, std::pair{30, "GiB"}, std::pair{20, "MiB"}}) {
    const std::int64_t unit = std::int64_t{1} << shift;
    if (bytes < unit) continue;
    const std::int64_t hundredths = bytes / unit * 100 + (bytes % unit * 100 + unit - 1) / unit;
    return std::to_string(hundredths / 100) + fraction_text(std::to_string(100 + hundredths % 100).substr(1)) +
           name;
  }
  return std::to_string(bytes);
}

std::int64_t device_bytes(std::int64_t limit, const PlanRequest& request) {
  constexpr double kMost = 9e18;
  const double usable = request.memory_limit ? 1 : 1 - request.reserve;
  return static_cast<std::int64_t>(std::min(std::ceil(static_cast<double>(limit) / usable), kMost));
}

}  // namespace pp::plan
