// CUDA graphs: work that is taken down while its stream captures, and done at every launch of the graph.
#pragma once

#include <cuda_runtime_api.h>

#include "tests/lab/imitation_gpu/imitation.h"

namespace pp::test::gpu {

bool is_capturing(cudaStream_t stream);
/// Handed over, or taken down where the stream captures.
void hand_over_or_capture(cudaStream_t stream, Work work);
/// Whether the calling thread has begun a capture and does what CUDA then forbids it: waiting, and asking the
/// driver for memory in a mode that is not relaxed.
bool forbidden_in_capture();

}  // namespace pp::test::gpu
