// What a training step takes by a closed form: 1F1B in equal stages of whole blocks, as the runs have it from
// which devices are fitted. Plans are priced by the planner's simulator, which this form agrees with there.
#pragma once

#include <vector>

#include "libprofile/core/model/model_graph.h"
#include "libprofile/estimate/device_spec.h"
#include "libprofile/estimate/layer_work.h"
#include "libprofile/estimate/measured_runs.h"
#include "libprofile/estimate/shard_waits.h"

namespace pp::profile {

/// What does not depend on a device: made once, priced for many.
struct StepWork {
  MeasuredRun run;
  std::size_t trainer = 0;  ///< whose figures count, of those of Figures
  std::string source = {};  ///< who measured it; runs of one are left out together
  std::vector<LayerWork> works;
  std::vector<int> stage_of;             ///< per layer; the loss belongs to the last stage
  std::vector<bool> in_block;            ///< per layer and the loss: what recomputation runs again
  std::vector<double> stage_parameters;  ///< a member's, before they are sharded
  std::vector<ShardUnit> units;          ///< of a shard group
  double message = 0;                    ///< bytes of a cut
};

/// Throws pp::Error (usage) for a run whose blocks (numbers in the names of layers, as in `block3.norm`) are no
/// multiple of its stages, or whose layers its tensor degree cannot divide.
StepWork step_work(const ModelGraph& model, const MeasuredRun& run, const TrainerSpec& trainer = {});

/// (M - 1) (F + R + B + 2 t) of the slowest stage + the sum of all F + R + B + (p - 1) 2 t + the all-reduce of
/// the slowest stage's gradients + its update: Narayanan et al., Memory-Efficient Pipeline-Parallel DNN
/// Training, 2021, sec. 2.2, with messages t on the way. All links are the device's `tensor_link`; an update
/// touches 16 bytes per parameter of two bytes (Adam). Shards wait as shard_waits() says. O(layers).
Seconds step_time(const StepWork& step, const DeviceSpec& device, const TrainerSpec& trainer = {});

}  // namespace pp::profile
