// A report of an inference as text for people.
#pragma once

#include <string>

#include "librun/infer/report.h"

namespace pp::run_tool {

/// How much, how fast, per worker and per stage.
std::string summary(const run::InferReport& report);

}  // namespace pp::run_tool
