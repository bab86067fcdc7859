// Peaks of measured runs beside what pp-plan counts for them, from which a device's memory figures are fitted.
#pragma once

#include <optional>
#include <string_view>

#include "libprofile/core/model/model_graph.h"
#include "libprofile/estimate/fit_memory.h"
#include "libprofile/estimate/measured_runs.h"

namespace pp::profile_tool {

/// Of a run that says its peak; counted are the bytes of the fullest worker in the plan of 1F1B with Adam, in
/// stages of equally many blocks, of the model as it is estimated for `device`. Throws pp::Error (usage) with
/// the line for a precision that there is none of or that does not go with the type.
std::optional<profile::PeakRun> peak_of(const profile::MeasuredRun& run, const ModelGraph& model,
                                        const profile::DeviceSpec& device, const TrainerSpec& trainer);

/// Of a report of pp-run on CUDA devices, what their allocators reserved at most. Nothing on others, whose
/// tensors are counted one by one: no allocator rounds those.
std::optional<profile::PeakRun> peak_of_report(std::string_view text);

}  // namespace pp::profile_tool
