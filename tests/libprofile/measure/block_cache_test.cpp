#include "libprofile/measure/block_cache.h"

#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libprofile/measure/block_cache");

using pp::profile::block_class;
using pp::profile::BlockCache;

namespace {
constexpr std::size_t kMiB = std::size_t{1} << 20;
}

TEST_CASE("a class is at most an eighth larger than what it holds") {
  // 1 MiB is a class; the next ones are 1/8 MiB = 131072 bytes apart, and from 2 MiB on twice that.
  CHECK(block_class(kMiB) == kMiB);
  CHECK(block_class(kMiB + 1) == 1179648);
  CHECK(block_class(2 * kMiB - 1) == 2 * kMiB);
  CHECK(block_class(2 * kMiB + 1) == 2 * kMiB + 262144);
  for (std::size_t bytes = BlockCache::kSmallest; bytes < 64 * kMiB; bytes += bytes / 7 + 13) {
    CHECK(block_class(bytes) >= bytes);
    CHECK(block_class(bytes) - bytes <= bytes / 8);
    CHECK(block_class(block_class(bytes)) == block_class(bytes));
  }
}

TEST_CASE("a returned block is used again for its class and for no other") {
  BlockCache cache;
  void* first = cache.take(3 * kMiB);
  REQUIRE(first != nullptr);
  CHECK(reinterpret_cast<std::uintptr_t>(first) % 4096 == 0);
  std::memset(first, 1, 3 * kMiB);
  CHECK(cache.free_bytes() == 0);
  cache.give(first, 3 * kMiB);
  CHECK(cache.free_bytes() == 3 * kMiB);
  void* other = cache.take(5 * kMiB);
  CHECK(other != first);
  CHECK(cache.take(3 * kMiB - 100) == first);  // classes around 3 MiB are 256 KiB apart
  CHECK(cache.free_bytes() == 0);
  cache.give(first, 3 * kMiB - 100);
  cache.give(other, 5 * kMiB);
}

TEST_CASE("free blocks go back before a quarter more than the peak is held") {
  BlockCache cache;
  void* block = cache.take(384 * kMiB);
  cache.give(block, 384 * kMiB);
  // Peak 384 (a class, they are 32 apart): 480 and the slack of 64 may be held. 384 free and 160 asked for is
  // 544, still inside.
  void* inside = cache.take(160 * kMiB);
  CHECK(cache.free_bytes() == 384 * kMiB);
  // 384 + 160 + 8 = 552 is outside.
  void* outside = cache.take(8 * kMiB);
  CHECK(cache.free_bytes() == 0);
  cache.give(inside, 160 * kMiB);
  cache.give(outside, 8 * kMiB);
}

TEST_CASE("what the system does not have is null, and the cache still works") {
  BlockCache cache;
  CHECK(cache.take(std::size_t{1} << 60) == nullptr);
  void* block = cache.take(kMiB);
  CHECK(block != nullptr);
  cache.give(block, kMiB);
}

TEST_CASE("threads share the blocks") {
  BlockCache cache;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&cache] {
      for (int i = 0; i < 200; ++i) {
        const std::size_t bytes = kMiB * static_cast<std::size_t>(1 + i % 3);
        auto* block = static_cast<char*>(cache.take(bytes));
        block[0] = block[bytes - 1] = 1;
        cache.give(block, bytes);
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(cache.free_bytes() <= 4 * (1 + 2 + 3) * kMiB);  // each thread held one block at a time
}

TEST_SUITE_END();
