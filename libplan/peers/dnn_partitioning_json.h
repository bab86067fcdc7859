// Reader of dnn-partitioning's JSON graphs: nodes with latencies in ms and sizes in bytes, edges with the ms
// that a full transfer of their producer's output takes.
#pragma once

#include <string_view>

#include "libprofile/core/profile.h"

namespace pp::plan {

/// Nodes of one `colorClass` (a forward node and its backward twin) become one opaque layer `node<id>`, named
/// after its first forward node: forward and backward time are the sums of `fpgaLatency`, `saved` the sum of
/// `size`. The transfers become `transfer_s` (to the layer's consumers) and `gradient_transfer_s` (to its
/// producers); where backward edges run like the forward ones, both are part of `transfer_s`. The order is that
/// of the forward edges. `maxSizePerFPGA` is the device's memory; CPUs, an edge's `size` and
/// undocumented keys are ignored. Throws pp::Error (data) with the JSON pointer: duplicate ids, unknown nodes,
/// cycles, edges of one producer with unequal costs, backward edges without a forward one beside them, nodes
/// that accelerators do not support.
Profile import_dnn_partitioning(std::string_view text, std::string_view name, int batch_size);

}  // namespace pp::plan
