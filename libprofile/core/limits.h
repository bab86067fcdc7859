// Where a refusal points when the reason is not one input but what the tools can express.
#pragma once

#include <string_view>

namespace pp {

/// Names the table of such things, with what to do instead.
inline constexpr std::string_view kLimits =
    " (more: \"What the tools cannot express\", configs/how-to/README.md)";

}  // namespace pp
