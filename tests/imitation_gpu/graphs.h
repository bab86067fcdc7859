// CUDA graphs: work that is taken down while its stream captures, and done at every launch of the graph.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>

namespace pp::test::gpu {

/// Work, done in the stream that it is given.
using Work = std::function<void(cudaStream_t)>;

bool is_capturing(cudaStream_t stream);
/// Done at once, or taken down where the stream captures.
void do_or_capture(cudaStream_t stream, Work work);
/// Whether the calling thread has begun a capture and does what CUDA then forbids it: waiting, and asking the
/// driver for memory in a mode that is not relaxed.
bool forbidden_in_capture();

}  // namespace pp::test::gpu
