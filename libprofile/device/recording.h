// Work for a CUDA device that is taken down once and then handed over again and again, each time by one call of
// the host: CUDA graphs.
#pragma once

#include <c10/core/Device.h>

#include <cstddef>
#include <functional>
#include <memory>

namespace pp::profile {

/// Pieces of work, numbered from 0, that run again in the order in which they were taken down: then a piece may
/// use the memory that an earlier one has let go of. They read and write the tensors that they were taken down
/// with, wherever their values come from. For the thread that made it, which has entered the device.
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
