#include "libprofile/device/hand_over.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>

#include <array>
#include <future>
#include <thread>
#include <utility>

#include "tests/support/torch_test.h"

namespace pp::profile {
namespace {

at::Tensor block_of(const MemoryAccount& account, std::int64_t bytes) {
  const ChargeMemory charged(account);
  return at::empty({bytes}, at::kByte);
}

}  // namespace

TEST_SUITE("libprofile/device/hand_over") {
  TEST_CASE("a tensor that the sender drops is charged to nobody under way, then to the receiver") {
    install_memory_meter();
    MemoryAccount sender, receiver;
    at::Tensor message = block_of(sender, 1000);
    release_charges({&message, 1});
    CHECK(sender.live() == Bytes(0));
    CHECK(receiver.live() == Bytes(0));
    at::Tensor taken = received(message, receiver);
    message.reset();
    CHECK(receiver.live() == Bytes(1000));
    taken.reset();
    CHECK(receiver.live() == Bytes(0));
    CHECK(receiver.peak() == Bytes(1000));
  }

  TEST_CASE("a tensor that the sender keeps is charged to both, each for as long as it holds it") {
    install_memory_meter();
    MemoryAccount sender, receiver;
    at::Tensor kept = block_of(sender, 1000);
    {
      const at::Tensor message = kept.detach();
      release_charges({&message, 1});
    }
    CHECK(sender.live() == Bytes(1000));
    at::Tensor taken = received(kept.detach(), receiver);
    CHECK(receiver.live() == Bytes(1000));
    kept.reset();
    CHECK(sender.live() == Bytes(1000));  // the receiver's tensor lives on the sender's block
    taken.reset();
    CHECK(sender.live() == Bytes(0));
    CHECK(receiver.live() == Bytes(0));
  }

  TEST_CASE("a tensor in two messages is charged to each receiver alone, for as long as that one holds it") {
    install_memory_meter();
    MemoryAccount sender, first, second;
    at::Tensor both = block_of(sender, 1000);
    std::array messages{both, both.detach(), both};  // one object twice, as both gradients of a sum are
    both.reset();
    release_charges(messages);
    CHECK(sender.live() == Bytes(0));
    at::Tensor one = received(messages[0], first), two = received(messages[1], second);
    for (at::Tensor& message : messages) message.reset();
    CHECK(sender.live() == Bytes(0));
    CHECK(first.live() == Bytes(1000));
    CHECK(second.live() == Bytes(1000));
    one.reset();
    CHECK(first.live() == Bytes(0));
    CHECK(second.live() == Bytes(1000));
    two.reset();
    CHECK(second.live() == Bytes(0));
  }

  TEST_CASE("two threads that receive one tensor while it is still being sent change no charge together") {
    install_memory_meter();  // ThreadSanitizer looks on
    MemoryAccount sender;
    std::array<MemoryAccount, 2> receivers;
    for (int round = 0; round < 100; ++round) {
      std::array<std::promise<at::Tensor>, 2> letters;
      std::array<std::thread, 2> takers;
      for (std::size_t i = 0; i < 2; ++i) {
        takers[i] = std::thread([&letters, &receivers, i] {
          const at::Tensor taken = received(letters[i].get_future().get(), receivers[i]);
        });
      }
      at::Tensor both = block_of(sender, 1000);
      std::array messages{both.detach(), both.detach()};
      both.reset();
      release_charges(messages);
      for (std::size_t i = 0; i < 2; ++i) letters[i].set_value(std::exchange(messages[i], {}));
      for (std::thread& taker : takers) taker.join();
      CHECK(sender.live() == Bytes(0));
    }
    for (const MemoryAccount& receiver : receivers) {
      CHECK(receiver.live() == Bytes(0));
      CHECK(receiver.peak() == Bytes(1000));
    }
  }

  TEST_CASE("what is handed on unchanged is no longer charged to the one in the middle") {
    install_memory_meter();
    MemoryAccount sender, middle, last;
    at::Tensor message = block_of(sender, 1000);
    release_charges({&message, 1});
    at::Tensor passing = received(message, middle);
    message.reset();
    CHECK(middle.live() == Bytes(1000));
    message = passing.view({10, 100}).detach();
    passing.reset();
    release_charges({&message, 1});
    CHECK(middle.live() == Bytes(0));
    const at::Tensor taken = received(message, last);
    message.reset();
    CHECK(sender.live() == Bytes(0));
    CHECK(middle.live() == Bytes(0));
    CHECK(last.live() == Bytes(1000));
  }

  TEST_CASE("what is received has the memory, shape and strides of what was sent") {
    install_memory_meter();
    const at::Tensor whole = at::arange(24, at::kFloat).reshape({2, 3, 4});
    const at::Tensor sent = whole.select(1, 1).transpose(0, 1);  // [4, 2], offset 4
    const at::Tensor taken = received(sent, MemoryAccount());
    CHECK(taken.data_ptr() == sent.data_ptr());
    CHECK(taken.strides() == sent.strides());
    CHECK(taken.equal(sent));
  }
}

}  // namespace pp::profile
