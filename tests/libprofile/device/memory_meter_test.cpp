#include "libprofile/device/memory_meter.h"

#include <ATen/ops/empty.h>
#include <c10/core/CPUAllocator.h>

#include <cstdint>
#include <optional>
#include <thread>

#include "tests/support/torch_test.h"

namespace pp::profile {
namespace {

/// A tensor of exactly `bytes` bytes.
at::Tensor block(std::int64_t bytes) { return at::empty({bytes}, at::kByte); }

}  // namespace

TEST_SUITE("libprofile/device/memory_meter") {
  TEST_CASE("live and peak follow what the charged thread allocates and frees") {
    install_memory_meter();
    CHECK(memory_meter_installed());
    MemoryAccount account;
    const ChargeMemory charged(account);
    at::Tensor a = block(1000);
    {
      const at::Tensor b = block(500);
      CHECK(account.live() == Bytes(1500));
    }
    CHECK(account.live() == Bytes(1000));
    CHECK(account.peak() == Bytes(1500));
    account.reset_peak();
    CHECK(account.peak() == Bytes(1000));
    a.reset();
    CHECK(account.live() == Bytes(0));
    CHECK(account.peak() == Bytes(1000));
  }

  TEST_CASE("a block stays charged to its account when another thread frees it") {
    install_memory_meter();
    MemoryAccount first, second;
    at::Tensor tensor;
    std::thread([&] {
      const ChargeMemory charged(first);
      tensor = block(640);
    }).join();
    CHECK(first.live() == Bytes(640));
    std::thread([&] {
      const ChargeMemory charged(second);
      tensor.reset();
    }).join();
    CHECK(first.live() == Bytes(0));
    CHECK(second.live() == Bytes(0));
    CHECK(second.peak() == Bytes(0));
  }

  TEST_CASE("the innermost scope is charged, and without a scope nobody is") {
    install_memory_meter();
    MemoryAccount outer, inner;
    at::Tensor a, b, c;
    {
      const ChargeMemory charged_outer(outer);
      {
        const ChargeMemory charged_inner(inner);
        a = block(100);
      }
      b = block(200);
    }
    c = block(400);
    CHECK(inner.live() == Bytes(100));
    CHECK(outer.live() == Bytes(200));
  }

  TEST_CASE("a tensor may outlive every handle of its account, and copies are handles of one account") {
    install_memory_meter();
    at::Tensor tensor;
    std::optional<MemoryAccount> copy;
    {
      MemoryAccount account;
      const ChargeMemory charged(account);
      tensor = block(64);
      copy = account;
    }
    CHECK(copy->live() == Bytes(64));
    copy.reset();
    tensor.fill_(7);
    CHECK(tensor[63].item<int>() == 7);
  }

  TEST_CASE("an allocation above the limit is refused as out of memory and counts nothing") {
    install_memory_meter();
    MemoryAccount account(Bytes(1000));
    const ChargeMemory charged(account);
    const at::Tensor fits = block(600);
    std::string text;
    try {
      block(401);
    } catch (const c10::OutOfMemoryError& error) {
      text = error.what_without_backtrace();
    }
    CHECK(text == "out of memory: 401 bytes asked for, 600 of 1000 bytes in use");
    CHECK(account.live() == Bytes(600));
    CHECK(account.peak() == Bytes(600));
    CHECK(block(400).defined());  // exactly full
  }

  TEST_CASE("blocks are aligned to 64 bytes, empty ones have no address, raw blocks are counted too") {
    install_memory_meter();
    MemoryAccount account;
    const ChargeMemory charged(account);
    for (const std::int64_t bytes : {1, 63, 64, 65, 100000}) {
      CHECK(reinterpret_cast<std::uintptr_t>(block(bytes).data_ptr()) % 64 == 0);
    }
    CHECK(block(0).data_ptr() == nullptr);
    c10::Allocator* allocator = c10::GetCPUAllocator();
    void* raw = allocator->raw_allocate(128);  // as oneDNN asks for scratch
    CHECK(account.live() == Bytes(128));
    allocator->raw_deallocate(raw);
    CHECK(account.live() == Bytes(0));
  }

  TEST_CASE("an account tells its younger blocks from its older ones") {
    install_memory_meter();
    MemoryAccount account, other;
    at::Tensor older, younger, foreign;
    std::int64_t mark = 0;
    {
      const ChargeMemory charged(account);
      older = block(8);
      mark = account.blocks();
      younger = block(8);
    }
    {
      const ChargeMemory charged(other);
      foreign = block(8);
    }
    CHECK(mark == 1);
    CHECK_FALSE(account.charged_since(older.storage().data_ptr(), mark));
    CHECK(account.charged_since(younger.storage().data_ptr(), mark));
    CHECK_FALSE(account.charged_since(foreign.storage().data_ptr(), 0));
    CHECK_FALSE(account.charged_since(c10::DataPtr(), 0));
  }

  TEST_CASE("two threads that charge one account lose no byte") {
    install_memory_meter();
    MemoryAccount account;
    const auto work = [&] {
      const ChargeMemory charged(account);
      for (int i = 0; i < 2000; ++i) block(64 + i % 7);
    };
    std::thread a(work), b(work);
    a.join();
    b.join();
    CHECK(account.live() == Bytes(0));
    CHECK(account.blocks() == 4000);
    CHECK(account.peak() <= Bytes(2 * 70));
  }
}

}  // namespace pp::profile
