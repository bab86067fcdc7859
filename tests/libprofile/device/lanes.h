// Threads with a stream each on CUDA devices, and what one hands to another. The imitation GPU does work late
// (PP_IMITATION_ORDER), so that a missing order shows in the numbers.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>

#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>

#include "libprofile/device/compute_device.h"
#include "libprofile/device/hand_over.h"
#include "libprofile/device/queued_work.h"

namespace pp::test {

inline constexpr std::int64_t kNumbers = 1 << 20;

inline at::Device device(int index) { return profile::tensor_device(pp::DeviceKind::cuda, index); }

inline at::Tensor numbers(double value, int index = 0) {
  return at::full({kNumbers}, value, at::TensorOptions(device(index)));
}

inline bool all_equal(const at::Tensor& tensor, double value) { return tensor.eq(value).all().item<bool>(); }

inline bool works_late() {
  const char* order = std::getenv("PP_IMITATION_ORDER");
  return order != nullptr && std::string_view(order) == "late";
}

/// A thread that has entered a device and does what it is told, one thing at a time.
class Lane {
 public:
  explicit Lane(int index) : index_(index), thread_([this] { work(); }) {
    run([&] { profile::enter_device(device(index_), 1); });
  }
  ~Lane() {
    give({});
    thread_.join();
  }
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  /// Returns when the host's part of it is done.
  void run(std::function<void()> what) {
    give(std::move(what));
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !full_; });
  }
  void finish() {
    run([&] { profile::wait_for(device(index_)); });
  }

 private:
  void give(std::function<void()> what) {
    const std::lock_guard lock(mutex_);
    what_ = std::move(what);
    full_ = true;
    changed_.notify_all();
  }
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return full_; });
      const bool last = !what_;
      if (!last) what_();
      full_ = false;
      changed_.notify_all();
      if (last) return;
    }
  }

  int index_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool full_ = false;
  std::function<void()> what_;
  std::thread thread_;
};

/// A tensor on its way, with the event behind what made it.
struct Message {
  at::Tensor tensor;
  std::shared_ptr<profile::DeviceEvent> ready;

  static Message of(at::Tensor tensor) {
    std::shared_ptr<profile::DeviceEvent> ready = profile::make_event(tensor.device(), profile::Timing::off);
    ready->record();
    return {std::move(tensor), std::move(ready)};
  }
  /// On the calling thread, as a worker receives it.
  at::Tensor take(int index, const profile::MemoryAccount& account) {
    ready->hold_back(tensor.device());
    at::Tensor here = profile::brought_to(device(index), std::move(tensor));
    return profile::received(here, account);
  }
};

}  // namespace pp::test
