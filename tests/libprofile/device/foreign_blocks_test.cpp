// The books of blocks that CUDA's allocator reports, with reports by hand: no device is needed.
#include "libprofile/device/memory_books.h"

#include <ATen/ops/empty.h>

#include "libprofile/device/memory_meter.h"
#include "tests/support/torch_test.h"

namespace pp::profile {
namespace {

/// Memory that CUDA's allocator might have handed out, seen as a block of LibTorch: its context is its address.
c10::DataPtr block_at(std::uintptr_t address) {
  auto* memory = reinterpret_cast<void*>(address);
  return {memory, memory, &c10::detail::deleteNothing, c10::Device(c10::DeviceType::CUDA, 0)};
}

}  // namespace

TEST_SUITE("libprofile/device/foreign_blocks") {
  TEST_CASE("a block is charged to the account that the thread charges for CUDA memory until it is freed") {
    MemoryAccount account(Bytes(100));
    {
      const ChargeMemory charged(account, DeviceKind::cuda);
      detail::foreign_blocks().made(0x1000, 300);  // the device decides when it is full, not the account
    }
    detail::foreign_blocks().made(0x2000, 500);  // nobody charges
    CHECK(account.live() == Bytes(300));
    detail::foreign_blocks().freed(0x2000);
    detail::foreign_blocks().freed(0x1000);
    detail::foreign_blocks().freed(0x1000);  // not known any more
    CHECK(account.live() == Bytes(0));
    CHECK(account.peak() == Bytes(300));
  }

  TEST_CASE("memory of the other kind is not charged") {
    install_memory_meter();
    MemoryAccount gpu, cpu;
    const ChargeMemory charged_gpu(gpu, DeviceKind::cuda), charged_cpu(cpu);
    const at::Tensor tensor = at::empty({64}, at::kByte);
    detail::foreign_blocks().made(0x3000, 10);
    CHECK(gpu.live() == Bytes(10));
    CHECK(cpu.live() == Bytes(64));
    detail::foreign_blocks().freed(0x3000);
  }

  TEST_CASE("younger blocks are told from older ones, and a charge ends before its block") {
    MemoryAccount sender, receiver;
    const ChargeMemory charged(sender, DeviceKind::cuda);
    detail::foreign_blocks().made(0x4000, 10);
    const std::int64_t mark = sender.blocks();
    detail::foreign_blocks().made(0x5000, 20);
    CHECK_FALSE(sender.charged_since(block_at(0x4000), mark));
    CHECK(sender.charged_since(block_at(0x5000), mark));
    CHECK_FALSE(receiver.charged_since(block_at(0x5000), 0));

    const c10::DataPtr referring(reinterpret_cast<void*>(0x5000), c10::Device(c10::DeviceType::CUDA, 0));
    end_charge(referring);  // somebody else's view of the block
    CHECK(sender.live() == Bytes(30));
    end_charge(block_at(0x5000));
    CHECK(sender.live() == Bytes(10));
    detail::foreign_blocks().freed(0x4000);
    detail::foreign_blocks().freed(0x5000);
    CHECK(sender.live() == Bytes(0));
  }
}

}  // namespace pp::profile
