// Copies between host and device beside the worker's own work: a thread, on a GPU with a stream of its own,
// that does one after the other.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "libprofile/core/units.h"
#include "libprofile/device/device_event.h"
#include "librun/threads/coordinator.h"
#include "librun/threads/threads.h"

namespace pp::run {

/// Belongs to one worker, whose cores the thread inherits.
class Copier {
 public:
  using Ticket = std::int64_t;
  struct Copy {
    at::Tensor to, from;
  };
  /// Called by the thread when the values are there, with what copying took.
  using Done = std::function<void(Seconds)>;

  Copier(Coordinator& run, WorkerId worker, at::Device device);
  ~Copier();
  Copier(const Copier&) = delete;
  Copier& operator=(const Copier&) = delete;

  /// Behind all that the calling thread has handed to the device.
  Ticket begin(std::vector<Copy> copies, Done done);
  /// Blocks until it is done. Throws as Monitor::wait does.
  void await(Ticket ticket);

 private:
  struct Job {
    std::vector<Copy> copies;
    Done done;
    std::unique_ptr<profile::DeviceEvent> ready;  ///< null on a CPU
  };

  void live() noexcept;
  void run(const Job& job) const;

  Coordinator& run_;
  WorkerId worker_;
  at::Device device_;
  Monitor monitor_;
  std::deque<Job> jobs_;
  Ticket begun_ = 0, ended_ = 0;
  bool closed_ = false;
  Threads thread_;
};

}  // namespace pp::run
