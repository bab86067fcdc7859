#include "libprofile/measure/hand_over.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>

#include <utility>

#include "tests/support/torch_test.h"

namespace pp::profile {
namespace {

at::Tensor block_of(const MemoryAccount& account, std::int64_t bytes) {
  const ChargeMemory charged(account);
  return at::empty({bytes}, at::kByte);
}

}  // namespace

TEST_SUITE("libprofile/measure/hand_over") {
  TEST_CASE("a tensor that the sender drops is charged to nobody under way, then to the receiver") {
    install_memory_meter();
    MemoryAccount sender, receiver;
    at::Tensor message = block_of(sender, 1000);
    release_charge(message);
    CHECK(sender.live() == Bytes(0));
    CHECK(receiver.live() == Bytes(0));
    at::Tensor taken = received(std::move(message), receiver);
    CHECK(receiver.live() == Bytes(1000));
    taken.reset();
    CHECK(receiver.live() == Bytes(0));
    CHECK(receiver.peak() == Bytes(1000));
  }

  TEST_CASE("a tensor that the sender keeps is charged to both, each for as long as it holds it") {
    install_memory_meter();
    MemoryAccount sender, receiver;
    at::Tensor kept = block_of(sender, 1000);
    release_charge(kept.detach());
    CHECK(sender.live() == Bytes(1000));
    at::Tensor taken = received(kept.detach(), receiver);
    CHECK(receiver.live() == Bytes(1000));
    kept.reset();
    CHECK(sender.live() == Bytes(1000));  // the receiver's tensor lives on the sender's block
    taken.reset();
    CHECK(sender.live() == Bytes(0));
    CHECK(receiver.live() == Bytes(0));
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
