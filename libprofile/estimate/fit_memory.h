// A device's memory figures from measured peaks: what its driver and libraries hold in any case, and how much
// more the allocator takes than tensors need.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "libprofile/estimate/device_spec.h"
#include "libprofile/estimate/measured_runs.h"

namespace pp::profile {

/// Of the fullest device of a run: bytes of tensors as pp-plan counts them, and bytes as they were measured.
struct PeakRun {
  Bytes counted, measured;
};

/// measured = context + rounding * counted.
struct MemoryFit {
  Bytes context;
  double rounding = 1;
  FitError before, all;              ///< of the start and of the result, on all runs
  FitError fitted_half, other_half;  ///< of a fit to a random half of the runs alone
};

/// Why the runs cannot be fitted: the device does not say its memory, no run says its peak, fewer than four do,
/// or all count the same bytes, with which context and rounding are not told apart. Nothing: they can.
std::optional<std::string> memory_unseen(const DeviceSpec& start, std::span<const PeakRun> runs);

/// Least squares over predicted / measured - 1 within 0 <= context <= the device's memory and rounding >= 1, in
/// closed form: the best of the free minimum, of those on either limit, and of both limits. For runs without
/// memory_unseen(). O(runs log runs).
MemoryFit fit_memory(const DeviceSpec& start, std::span<const PeakRun> runs, unsigned seed);

}  // namespace pp::profile
