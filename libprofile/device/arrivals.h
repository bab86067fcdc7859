// Tensors that come to a CUDA device from another one, as double buffering has it: copies in a stream of their
// own, into memory that is used again in the order of events.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

namespace pp::profile {

/// What one thread receives over one way from one device to another, one tensor after the other. Their memory
/// is taken from the allocator once and charged to who pays for this thread's allocations then. It is used
/// again when the last handle has gone, wherever that was: behind all that was handed over until then by the
/// streams that use it, without the host waiting. Two tensors are always free before one is used again, or the
/// next copy would wait for what was computed last: with n handles at once there are n + 1 rooms, and never
/// fewer than two.
class Arrivals {
 public:
  virtual ~Arrivals() = default;
  /// A copy of `tensor`, which lives on the other device: behind what this thread's stream there has been told
  /// to wait for, and before what it hands to its own device from now on. Its computations until now go on
  /// meanwhile. Whoever lets another stream use the copy says so with keep_for_stream() (hand_over.h). The
  /// memory grows to the largest tensor.
  virtual at::Tensor copy(const at::Tensor& tensor) = 0;
};

/// For the calling thread, which has entered `device`.
std::unique_ptr<Arrivals> make_arrivals(const at::Device& device);

}  // namespace pp::profile
