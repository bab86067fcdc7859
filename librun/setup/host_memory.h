// Whether the host has the memory that a run cannot do without. Torch-free.
#pragma once

#include <span>
#include <string>

#include "libplan/plan/plan.h"
#include "librun/transport/placement.h"

namespace pp::run {

/// Least bytes on this host, as numbers that cannot overflow.
struct HostNeed {
  double data = 0;         ///< samples that are kept in memory
  double state = 0;        ///< of its CPU workers: weights, their gradients, what the optimizer keeps
  double activations = 0;  ///< of its CPU workers: the largest output of a layer, for one micro-batch
  bool trains = true;      ///< `state` is more than weights
  double sum() const { return data + state + activations; }
};

/// Of a synthetic sample: floating numbers take 4 bytes, integers 8.
double synthetic_sample_bytes(const ModelGraph& graph);

/// `data`: bytes of samples of one process; `devices`: per worker; `copies`: bytes of weights and what is kept
/// with them (gradients, optimizer state), per byte of weights.
HostNeed least_host_memory(const plan::Plan& plan, const ResolvedModel& model, std::span<const Device> devices,
                           double data, double copies, const Placement& placement = {});

/// Throws pp::Error (device) with need, available and remedy when the need is the larger.
void check_host_memory(const HostNeed& need, Bytes available);

}  // namespace pp::run
