// The model cut into as many parts as there are devices, to be measured while each device runs its own: as in a
// pipeline all hold the model once between them, where each holds all of it when they are replicas.
#pragma once

#include <span>
#include <vector>

#include "libprofile/measure/model_runner.h"

namespace pp::profile {

/// Neighbouring layers of about equal cost, each part with one layer at least; the loss goes with the last.
/// `costs`: per layer, as many as the model has, at least `count`.
std::vector<ModelPart> model_parts(const ResolvedModel& model, int count, std::span<const double> costs);

/// Whether each of `devices` runs a part of its own as well: not for one device, for fewer layers than devices,
/// nor where only `part` of the model is measured.
bool are_parts_measured(const ResolvedModel& model, const ModelPart& part, int devices);

/// Seconds of a pass per layer, the shortest of the recorded ones; the loss counts to the last layer.
std::vector<double> layer_costs(const VisitTimes& times, int layers);

/// One visit of the whole model from those of its parts, which ran equally many passes at the same time.
VisitTimes joined(const std::vector<VisitTimes>& parts);

}  // namespace pp::profile
