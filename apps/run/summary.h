// A run report as text for people.
#pragma once

#include <string>
#include <vector>

#include "librun/report/report.h"

namespace pp::run_tool {

/// Predicted beside measured, per run, per worker and per operation, and the last epoch's result.
std::string summary(const run::RunReport& report);

/// Stages of a worker, `0,3`.
std::string stages_of(const plan::Plan& plan, WorkerId worker);

/// Where the prediction of an operation was off by most time, when there are many.
std::string operation_table(std::vector<run::OpTime> rows);

/// `epoch 3: train loss 0.1234, test loss 0.0987, test accuracy 97.2 %, 12345 samples/s, evaluated in 12 ms`
std::string epoch_line(const run::EpochReport& epoch);
/// `step 40: test loss 0.0987, test accuracy 97.2 %, evaluated in 12 ms`
std::string evaluation_line(const run::EvaluationReport& evaluation);

}  // namespace pp::run_tool
