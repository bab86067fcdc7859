#include "librun/setup/frames.h"

#include <string>

#include "libprofile/core/error.h"

namespace pp::run {

void check_frames(const plan::Plan& plan, const ResolvedModel& model, const EpochShape& epoch) {
  const std::string schedule = "schedule " + plan.schedule.name;
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    if (batch_norms(model, static_cast<int>(i)).empty()) continue;
    throw Error(ErrorKind::data,
                "layer \"" + model.graph.layers[i].name + "\": batch norm: " + schedule +
                    " sees one frame at a time, whose statistics are no batch's; use layer_norm or "
                    "group_norm, or plan with pipedream");
  }
  // A gradient is taken for a later frame than its own.
  if (const int left = epoch.size(epoch.count - 1); left != epoch.mini_batch) {
    throw Error(ErrorKind::data, schedule + ": frames have " + std::to_string(epoch.mini_batch) +
                                     " samples each, the last one has " + std::to_string(left) +
                                     "; give a multiple, or plan with --mini-batch 1");
  }
}

}  // namespace pp::run
