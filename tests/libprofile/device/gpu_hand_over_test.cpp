// Memory that threads hand each other on CUDA devices, each with a stream of its own: nobody gets it before its
// last reader is done, and copies between devices wait for nothing but what they copy.
#include <c10/core/DeviceGuard.h>

#include "tests/libprofile/device/lanes.h"
#include "tests/support/torch_test.h"

#include "tests/support/gpu.h"

namespace gpu_hand_over_test {

using namespace pp;
using namespace pp::profile;
using namespace pp::test;

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

}  // namespace gpu_hand_over_test
