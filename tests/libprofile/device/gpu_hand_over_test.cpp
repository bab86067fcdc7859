// Memory that threads hand each other on CUDA devices, each with a stream of its own: nobody gets it before its
// last reader is done, and copies between devices wait for nothing but what they copy. The imitation GPU does
// work late (PP_IMITATION_ORDER), so that a missing order shows in the numbers.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <c10/core/DeviceGuard.h>

#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>

#include "libprofile/device/compute_device.h"
#include "libprofile/device/device_event.h"
#include "libprofile/device/hand_over.h"
#include "tests/support/torch_test.h"

#include "tests/support/gpu.h"

using namespace pp;
using namespace pp::profile;

namespace {

constexpr std::int64_t kNumbers = 1 << 20;

at::Device device(int index) { return tensor_device(DeviceKind::cuda, index); }

at::Tensor numbers(double value, int index = 0) {
  return at::full({kNumbers}, value, at::TensorOptions(device(index)));
}

bool all_equal(const at::Tensor& tensor, double value) { return tensor.eq(value).all().item<bool>(); }

bool works_late() {
  const char* order = std::getenv("PP_IMITATION_ORDER");
  return order != nullptr && std::string_view(order) == "late";
}

/// A thread that has entered a device and does what it is told, one thing at a time.
class Lane {
 public:
  explicit Lane(int index) : index_(index), thread_([this] { work(); }) {
    run([&] { enter_device(device(index_), 1); });
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
    run([&] { wait_for(device(index_)); });
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
  std::shared_ptr<DeviceEvent> ready;

  static Message of(at::Tensor tensor) {
    std::shared_ptr<DeviceEvent> ready = make_event(tensor.device(), Timing::off);
    ready->record();
    return {std::move(tensor), std::move(ready)};
  }
  /// On the calling thread, as a worker receives it.
  at::Tensor take(int index, const MemoryAccount& account) {
    ready->hold_back(tensor.device());
    at::Tensor here = brought_to(device(index), std::move(tensor));
    return received(here, account);
  }
};

}  // namespace

TEST_SUITE("gpu/libprofile/device/hand_over") {
  // One stream makes the block, a second one hands it on unchanged, a third one reads it. The second one is
  // done, the third has not begun, when the first looks for memory again.
  TEST_CASE("a block that was handed on is not used again before its last reader is done") {
    PP_NEEDS_CUDA(1);
    open_devices(std::vector{device(0)});
    MemoryAccount account;
    Lane maker(0), middle(0), reader(0);
    Message message;
    at::Tensor passed_on, sum, others;
    maker.run([&] { message = Message::of(numbers(1)); });
    middle.run([&] {
      passed_on = message.take(0, account);
      message = Message::of(std::move(passed_on));
    });
    reader.run([&] {
      sum = message.take(0, account) + 1;
      passed_on.reset();
    });
    middle.finish();
    maker.run([&] { others = numbers(7); });
    maker.finish();
    reader.run([&] { CHECK(all_equal(sum, 2)); });
  }

  // Both copies come from one device. The first one's tensor is still in the making when the second one's is
  // complete, and so is what the first receiver computes.
  TEST_CASE("copies between devices wait neither for each other nor for what their receivers compute") {
    PP_NEEDS_CUDA(2);
    open_devices(std::vector{device(0), device(1)});
    MemoryAccount account;
    Lane slow(0), quick(0), first(1), second(1);
    // Set when the stream comes to it.
    const auto flag = [] { return host_room({1}, at::kFloat, at::MemoryFormat::Contiguous, true).zero_(); };
    at::Tensor made = flag(), computed = flag(), from_slow, from_quick, ones;
    const auto set = [](at::Tensor& which, const at::Tensor& to) { which.copy_(to.narrow(0, 0, 1), true); };
    const auto is_set = [](const at::Tensor& which) { return which.const_data_ptr<float>()[0] != 0; };
    Message of_slow, of_quick;
    slow.run([&] {
      const at::Tensor tensor = numbers(1);
      set(made, tensor);
      of_slow = Message::of(tensor);
    });
    quick.run([&] { of_quick = Message::of(numbers(2)); });
    std::shared_ptr<DeviceEvent> copied;
    first.run([&] {
      ones = numbers(1, 1);
      set(computed, ones);
      from_slow = of_slow.take(1, account);
      const c10::DeviceGuard guard(device(0));  // where the copy runs
      copied = make_event(device(0), Timing::off);
      copied->record();
    });
    second.run([&] { from_quick = of_quick.take(1, account); });
    second.finish();
    if (works_late()) CHECK_FALSE(is_set(made));
    copied->wait();
    if (works_late()) CHECK_FALSE(is_set(computed));
    first.run([&] { CHECK(all_equal(from_slow, 1)); });
    second.run([&] { CHECK(all_equal(from_quick, 2)); });
    CHECK(is_set(made));
    CHECK(is_set(computed));
  }
}
