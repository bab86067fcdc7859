// A GPU that is none, so that the CUDA half of the profiler and the runtime runs where there is no GPU: what a
// process sees that has the library preloaded. runtime.cpp stands for the CUDA runtime, kernels.cpp for
// LibTorch's CUDA kernels; README.md says what a test on it shows.
#pragma once

#include <cuda_runtime_api.h>

#include <span>
#include <string>

#include "tests/imitation_gpu/race_detector.h"

namespace pp::test::gpu {

/// Work of an operation in `stream` of the calling thread's device. Regions of host memory count for nothing.
void launched(cudaStream_t stream, const std::string& operation, std::span<const Region> reads,
              std::span<const Region> writes);
/// The host has the result of what `stream` has been handed.
void host_has_result(cudaStream_t stream);

}  // namespace pp::test::gpu
