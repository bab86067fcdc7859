// Work that threads hand to a CUDA device's queues: events in it, tensors that arrive from another device,
// and work that is taken down once and handed over again and again (CUDA graphs).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <functional>
#include <memory>

#include "libprofile/core/units.h"

namespace pp::profile {

/// A point in the work of one CUDA device; recorded again and again, it stands for the last time. For one
/// thread at a time.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
  /// Behind all that the calling thread has handed to the device so far.
  virtual void record() = 0;
  /// What the calling thread hands to `device` from now on waits there for the event; the host does not.
  virtual void hold_back(const c10::Device& device) const = 0;
  /// Returns when the device has come to it; the thread sleeps meanwhile.
  virtual void wait() const = 0;
  /// From `earlier` to this one, both timed and reached. Single precision: about 1e-7 of the time between.
  virtual Seconds since(const DeviceEvent& earlier) const = 0;
};

enum class Timing { off, on };

/// Null for a CPU, whose work is done when the call returns.
std::unique_ptr<DeviceEvent> make_event(const c10::Device& device, Timing timing);

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

/// Pieces of work, numbered from 0, that are repeated in the order in which they were taken down: then a piece
/// may use the memory that an earlier one has let go of. They read and write the tensors that they were taken
/// down with, wherever their values come from. For the thread that made it, which has entered the device.
class Recording {
 public:
  virtual ~Recording() = default;
  /// What `work` hands to the device becomes the next piece; none of it is done. Tensors that it makes get
  /// memory of the recording's own, also those that it lets go of again. It must not wait for the device, and
  /// has run before without being recorded, so that libraries have made what they keep. A process records one
  /// piece at a time, while its other threads go on but for brought_to() of CUDA tensors. Waits for the device.
  /// Rethrows what `work` throws, and c10::Error for work that cannot be recorded: the recording is then of no
  /// further use.
  virtual void record(const std::function<void()>& work) = 0;
  /// Behind what the thread has handed over before. About the host's time of one kernel.
  virtual void replay(std::size_t piece) = 0;
};

/// On a CUDA device.
std::unique_ptr<Recording> make_recording(const c10::Device& device);

}  // namespace pp::profile
