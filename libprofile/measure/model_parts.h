// The model cut into as many parts as there are devices, to be measured while each device runs its own: as in a
// pipeline all hold the model once between them, where each holds all of it when they are replicas.
#pragma once

#include <vector>

#include "libprofile/measure/model_runner.h"

namespace pp::profile {

/// Neighbouring layers of about equal work by their forward flops, each part with one layer at least; the loss
/// goes with the last. Empty for a model of fewer layers than parts, or for one part.
std::vector<ModelPart> model_parts(const ResolvedModel& model, int count);

/// What each of `devices` runs of the model where they share it; none where only `part` of it is measured.
std::vector<ModelPart> parts_to_measure(const ResolvedModel& model, const ModelPart& part, int devices);

/// One visit of the whole model from those of its parts, which ran equally many passes at the same time.
VisitTimes joined(const std::vector<VisitTimes>& parts);

}  // namespace pp::profile
