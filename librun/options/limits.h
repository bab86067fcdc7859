// One wording for numbers out of range: `momentum = 1: must be in [0, 1)`.
#pragma once

#include <string_view>

namespace pp::run {

/// Throws pp::Error (usage) unless `holds`.
void require(bool holds, std::string_view name, double value, std::string_view limit);

}  // namespace pp::run
