// What this build of pp-run computes and talks with.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace pp::run_tool {

/// Names and versions; the version of what this build lacks is empty.
std::vector<std::pair<std::string, std::string>> backends();

}  // namespace pp::run_tool
