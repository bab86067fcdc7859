// A case that cannot run here says so and returns.
#pragma once

#include <string_view>

namespace pp::test {

/// Prints `SKIPPED: why`. The process then exits with 77, which CTest shows as skipped, unless an assertion
/// fails.
void skip(std::string_view why);

}  // namespace pp::test
