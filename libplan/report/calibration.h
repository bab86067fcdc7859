// What runs measured, against what the profile says of the same stages, and the profile corrected by it.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "libplan/search/planner.h"

namespace pp::plan {

/// What a run's report (pp.report, described beside librun/report) says of its operations.
struct MeasuredRun {
  struct Operation {
    OpKind kind{};
    StageId stage{};
    Seconds median{};
  };
  std::string hash;  ///< of the report
  Plan plan;         ///< that ran; checked in full
  std::vector<Operation> operations;
};
/// Reads no more of a report than that. Throws pp::Error (data).
MeasuredRun parse_measured_run(std::string_view text);

/// Measured over promised of one stage's layers. Where the halves of a backward were not measured they have its
/// factor, where only the halves were, the backward has that of their sum; nothing: nothing was measured.
struct StageFactors {
  std::vector<std::string> layers;
  std::optional<double> forward, backward, input_gradient, weight_gradient, update;
  bool operator==(const StageFactors&) const = default;
};
struct RunFactors {
  std::string report;  ///< hash
  std::vector<StageFactors> stages;
  OptimizerName optimizer = OptimizerName::sgd;
  std::optional<double> update;  ///< of all stages together
  bool operator==(const RunFactors&) const = default;
};

/// Promised is what `profile` says of the stages that ran, whatever their plan was made from; the fixed costs
/// of an operation are taken off both. Throws pp::Error (data) for a run of another model, type or kind of
/// device, of a micro-batch size that the profile does not have, or without operations.
RunFactors factors_of(const MeasuredRun& run, const Profile& profile);

/// `profile` with every time of a layer multiplied by the median, over the runs, of the factors of the stages
/// in which it stood; the loss is one of the last stage. Updates are those of the optimizers that ran.
Profile calibrated(const Profile& profile, std::span<const RunFactors> runs);

/// The reports, and the range of all factors.
Calibration summary_of(std::span<const RunFactors> runs);

}  // namespace pp::plan
