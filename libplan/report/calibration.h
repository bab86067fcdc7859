// What runs measured, against what the profile says of the same stages: factors of layers and of devices.
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
    std::vector<Seconds> replicas = {};  ///< of each worker of the stage; 0: nothing; none: there is one
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
/// The same on one of the stage's devices.
struct PlacedFactors {
  StageFactors stage;
  std::vector<OpKind> measured;                     ///< F, B, I, W of these
  Device device;                                    ///< as the run's plan has it
  Seconds work{};                                   ///< promised of its micro-batches, for one of the stage
  double measured_update = 0, promised_update = 0;  ///< seconds
  bool last = false;                                ///< of the pipeline: the loss is among its layers
  bool operator==(const PlacedFactors&) const = default;
};
struct RunFactors {
  std::string report;  ///< hash
  std::vector<StageFactors> stages;
  OptimizerName optimizer = OptimizerName::sgd;
  std::vector<PlacedFactors> places;
  bool operator==(const RunFactors&) const = default;
};

/// Promised is what `profile` says of the stages that ran, whatever their plan was made from; the fixed costs
/// of an operation are taken off both. Throws pp::Error (data) for a run of another model, type or kind of
/// device, of a micro-batch size that the profile does not have, or without operations.
RunFactors factors_of(const MeasuredRun& run, const Profile& profile);

/// Device factors within this one are noise.
inline constexpr double kSameSpeed = 1.1;

/// A device that did less than this share of the work of the busiest tells nothing of speeds: fixed costs are
/// what it took.
inline constexpr double kComparable = 0.1;

/// The places of a run whose devices did too little for that; their layers take what was off.
std::vector<const PlacedFactors*> barely_used(const RunFactors& run);

/// What is the devices' doing is told from what is the layers' by two_way_factors() over all runs. A device's
/// speed is that of the last run in which it stood; the factor of a layer is the median, over runs and devices,
/// of what remains of the stages in which it stood; the loss is one of the last stage. Updates have one factor,
/// that of all stages together, for each optimizer that ran.
Calibration calibration_of(const Profile& profile, std::span<const RunFactors> runs);

}  // namespace pp::plan
