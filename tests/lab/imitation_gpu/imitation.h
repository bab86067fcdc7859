// A GPU that is none, so that the CUDA half of the profiler and the runtime runs where there is no GPU: what a
// process sees that has the library preloaded. runtime.cpp stands for the CUDA runtime, kernels.cpp for
// LibTorch's CUDA kernels; README.md says what a test on it shows.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/lab/imitation_gpu/race_detector.h"

namespace pp::test::gpu {

/// What an operation does with memory, in whatever thread it is run. Regions of host memory count for nothing.
struct Work {
  std::string operation;
  std::vector<Region> reads, writes;
  std::function<void()> run;
};

/// Work in `stream` of the calling thread's device, behind what that stream has been handed.
void hand_over(cudaStream_t stream, const Work& work);
/// Whether work may be done after it was handed over (late_streams.h).
bool works_late();
/// Returns when `stream` has done all that it has been handed, and the host has the result.
void host_has_result(cudaStream_t stream);

}  // namespace pp::test::gpu
