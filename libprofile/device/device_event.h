// Places in the work that threads hand to devices: what orders it between threads, and tells how long it took.
#pragma once

#include <c10/core/Device.h>

#include <memory>

#include "libprofile/core/units.h"

namespace pp::profile {

/// Of one CUDA device; recorded again and again, it stands for the last time. For one thread at a time.
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

}  // namespace pp::profile
