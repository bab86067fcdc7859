// Memory for what arrives from another device: which of it is used again, and behind whom.
#include "libprofile/device/queued_work.h"

#include <c10/core/DeviceGuard.h>

#include <vector>

#include "tests/libprofile/device/lanes.h"
#include "tests/support/torch_test.h"

#include "tests/support/gpu.h"

namespace gpu_arrivals_test {

using namespace pp;
using namespace pp::profile;
using namespace pp::test;

namespace {

/// cuda:0 makes tensors, one thread on cuda:1 receives them.
struct OneWay {
  OneWay() {
    open_devices(std::vector{device(0), device(1)});
    receiver.run([&] { arrivals = make_arrivals(device(1)); });
  }
  ~OneWay() {
    receiver.run([&] { arrivals.reset(); });
  }

  /// use(the next tensor, as the receiver has it), on the receiver's thread.
  template <class Use>
  void send(double value, const Use& use, std::int64_t count = kNumbers) {
    Message message;
    maker.run([&] { message = Message::of(numbers(value).narrow(0, 0, count)); });
    receiver.run([&] {
      message.ready->hold_back(device(0));
      at::Tensor here = brought_to(*arrivals, message.tensor);
      rooms.push_back(here.const_data_ptr());
      use(std::move(here));
    });
  }
  /// The host waits for the copies, and for nothing else.
  void finish_copies() {
    receiver.run([&] {
      const c10::DeviceGuard guard(device(0));  // where they run
      const auto copied = make_event(device(0), Timing::off);
      copied->record();
      copied->wait();
    });
  }
  bool equal(const at::Tensor& tensor, double value) {
    bool found = false;
    receiver.run([&] { found = all_equal(tensor, value); });
    return found;
  }

  Lane maker{0}, receiver{1};
  std::unique_ptr<Arrivals> arrivals;
  std::vector<const void*> rooms;  ///< of the tensors, in their order
};

}  // namespace

TEST_SUITE("gpu/libprofile/device/arrivals") {
  // The copies may be done long before the sums: all but those that want a room whose sum is not made.
  TEST_CASE("tensors that are dropped take turns in two rooms, each behind the last use of the one before") {
    PP_NEEDS_CUDA(2);
    OneWay way;
    std::vector<at::Tensor> sums;
    for (int i = 0; i < 5; ++i) way.send(i, [&](const at::Tensor& here) { sums.push_back(here + 1); });
    CHECK(way.rooms[0] != way.rooms[1]);
    for (std::size_t i = 2; i < 5; ++i) CHECK(way.rooms[i] == way.rooms[i - 2]);
    way.finish_copies();
    for (int i = 0; i < 5; ++i) CHECK(way.equal(sums[static_cast<std::size_t>(i)], i + 1));
  }

  // Two at once, as micro-batches in flight: the third room is free while both are held.
  TEST_CASE("with two handles at once there are three rooms") {
    PP_NEEDS_CUDA(2);
    OneWay way;
    std::vector<at::Tensor> held, sums;
    for (int i = 0; i < 8; ++i) {
      way.send(i, [&](at::Tensor here) { held.push_back(std::move(here)); });
      if (i == 0) continue;
      way.receiver.run([&] {
        sums.push_back(held.front() + 1);
        held.erase(held.begin());
      });
    }
    for (std::size_t i = 3; i < 8; ++i) CHECK(way.rooms[i] == way.rooms[i - 3]);
    way.finish_copies();
    for (int i = 0; i < 7; ++i) CHECK(way.equal(sums[static_cast<std::size_t>(i)], i + 1));
  }

  TEST_CASE("a room that was handed on is used again behind the other stream's last use") {
    PP_NEEDS_CUDA(2);
    OneWay way;
    Lane other(1);
    MemoryAccount account;
    at::Tensor sum;
    way.send(1, [&](at::Tensor here) {
      Message message = Message::of(std::move(here));
      other.run([&] { sum = message.take(1, account) + 1; });
    });
    for (int i = 2; i < 5; ++i) way.send(i, [](const at::Tensor&) {});
    CHECK(way.rooms[2] == way.rooms[0]);
    way.finish_copies();
    other.run([&] { CHECK(all_equal(sum, 2)); });
  }

  TEST_CASE("who pays for the receiver's memory pays for its rooms, and they grow with what comes") {
    PP_NEEDS_CUDA(2);
    MemoryAccount account;
    {
      OneWay way;
      std::vector<at::Tensor> sums;
      const auto send = [&](double value, std::int64_t count) {
        const auto add_up = [&](const at::Tensor& here) {
          const ChargeMemory elsewhere(MemoryAccount(), DeviceKind::cuda);
          sums.push_back(here + 1);
        };
        way.send(value, add_up, count);
      };
      std::unique_ptr<ChargeMemory> charged;
      way.receiver.run([&] { charged = std::make_unique<ChargeMemory>(account, DeviceKind::cuda); });
      for (int i = 0; i < 3; ++i) send(i, 1024);
      CHECK(account.live() == Bytes(2 * 4096));
      for (int i = 3; i < 6; ++i) send(i, 2048);
      CHECK(account.live() == Bytes(2 * 8192));
      send(6, 1024);
      CHECK(account.live() == Bytes(2 * 8192));
      way.receiver.run([&] { charged.reset(); });
      for (int i = 0; i < 7; ++i) CHECK(way.equal(sums[static_cast<std::size_t>(i)], i + 1));
    }
    CHECK(account.live() == Bytes(0));
  }
}

}  // namespace gpu_arrivals_test
