// The text profiles of PipeDream and DAPPLE (`graph.txt`): nodes with times in ms and sizes in bytes, the batch
// already multiplied in, and tab-indented edges; and a plan as the text that PipeDream's optimizer writes and
// its code generator reads.
#pragma once

#include <string>
#include <string_view>

#include "libplan/plan/plan.h"
#include "libprofile/core/profile.h"

namespace pp::plan {

/// The profile of a graph of opaque layers, one micro-batch size (`batch_size`), without spread and without the
/// split of backward. Source nodes called `Input..` and then sinks called `__getitem__..` are dropped. Layers
/// stand in topological order, named by their node ids. What the format does not say is listed in
/// Profile::estimated. Throws pp::Error (data) with the line: unknown nodes, duplicate ids, cycles, negative or
/// missing numbers, no layer left.
Profile import_pipedream(std::string_view text, std::string_view name, int batch_size);

/// The batch of the profile that DAPPLE writes into file names, N of `vgg-19-pbs-N` or `vgg-19-pbs-N-any-word`;
/// 1 in other names. Throws pp::Error (usage) where `-pbs-` is followed by no such number.
int batch_size_in_name(std::string_view name);

/// One line per layer in the order of the profile, `id -- op -- forward_compute_time=..,
/// backward_compute_time=.., activation_size=.., parameter_size=.. -- stage_id=K`, then the edges; times in ms
/// at the profile's first micro-batch size, sizes in bytes. import_pipedream() reads it back. Replicas are not
/// part of the format. Throws pp::Error (data) when the plan was made for another model.
std::string export_pipedream(const Plan& plan, const Profile& profile);

}  // namespace pp::plan
