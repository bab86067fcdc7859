// Carries boundary tensors between workers, over channels that are known before anything is sent.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "librun/threads/coordinator.h"
#include "librun/transport/channel.h"

namespace pp::run {

/// Channels are numbered by whoever makes the object. Each end of a channel is one worker's thread. Tensors are
/// read-only from the moment they are sent. send() and receive() throw as Monitor::wait does.
class Transport {
 public:
  virtual ~Transport() = default;
  /// By the receiver, for every message, before receive(): it will be asked for, and has `rows` samples. In the
  /// order of the receiver's program, an operation ahead where the step lets it. Does not block.
  virtual void expect(int channel, std::int64_t number, int rows) = 0;
  /// Does not wait for the receiver, unless it has a window of messages unread, nor for the tensor's device to
  /// have made it: the calling thread has entered the device.
  virtual void send(int channel, std::int64_t number, at::Tensor tensor) = 0;
  /// Blocks the receiver until the message is there. A tensor on a CUDA device may still be in the making: what
  /// the calling thread hands to that device from now on comes after it.
  virtual at::Tensor receive(int channel, std::int64_t number) = 0;
};

/// Workers of one process: tensors go by reference, so nothing is prepared for those that are expected. The
/// coordinator must outlive it; its stop() ends every send and receive.
std::unique_ptr<Transport> make_in_process_transport(Coordinator& coordinator, std::vector<Channel> channels);

}  // namespace pp::run
