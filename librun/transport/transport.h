// Carries boundary tensors between workers. A message is named by its tag; order does not matter. Received
// tensors are read-only.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "librun/transport/mailbox.h"

namespace pp::run {

class Transport {
 public:
  virtual ~Transport() = default;
  /// Does not wait for the receiver, unless it is too far behind.
  virtual void send(WorkerId from, WorkerId to, const Tag& tag, at::Tensor tensor) = 0;
  /// Blocks worker `at` until the message is there.
  virtual at::Tensor receive(WorkerId at, WorkerId from, const Tag& tag) = 0;
};

/// Workers of one process: tensors go by reference. `capacity[to][from]`: messages that may wait unread. The
/// coordinator must outlive it; its stop() ends every send and receive.
std::unique_ptr<Transport> make_in_process_transport(Coordinator& coordinator,
                                                     std::vector<std::vector<int>> capacity);

}  // namespace pp::run
