// A run report as text for people.
#pragma once

#include <string>

#include "libplan/plan.h"
#include "librun/report/report.h"

namespace pp::run_tool {

/// Predicted beside measured, per run and per worker, and the last epoch's result.
std::string summary(const plan::Plan& plan, const run::RunReport& report);

/// `epoch 3: train loss 0.1234, test loss 0.0987, test accuracy 97.2 %, 12345 samples/s`
std::string epoch_line(const run::EpochReport& epoch);

}  // namespace pp::run_tool
