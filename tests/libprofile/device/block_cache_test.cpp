#include "libprofile/device/block_cache.h"

#include <atomic>
#include <cstdint>
#include <cstring>
#include <set>
#include <thread>

#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libprofile/device/block_cache");

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
  // Peak 384 (a class, they are 32 apart): 480 and the slack of 16 may be held. 384 free and 112 asked for is
  // 496, still inside.
  void* inside = cache.take(112 * kMiB);
  CHECK(cache.free_bytes() == 384 * kMiB);
  // 384 + 112 + 8 = 504 is outside.
  void* outside = cache.take(8 * kMiB);
  CHECK(cache.free_bytes() == 0);
  cache.give(inside, 112 * kMiB);
  cache.give(outside, 8 * kMiB);
}

TEST_CASE("what the system does not have is null, and the cache still works") {
  BlockCache cache;
  CHECK(cache.take(std::size_t{1} << 60) == nullptr);
  void* block = cache.take(kMiB);
  CHECK(block != nullptr);
  cache.give(block, kMiB);
}

TEST_CASE("blocks come home from the threads that they travelled to") {
  constexpr int kBlocks = 200;
  BlockCache cache;
  std::atomic<char*> travelling{nullptr};
  std::thread other([&] {
    for (int i = 0; i < kBlocks; ++i) {
      travelling.wait(nullptr);
      char* block = travelling.exchange(nullptr);
      travelling.notify_one();
      block[kMiB - 1] = 1;
      cache.give(block, kMiB);
    }
  });
  std::set<void*> distinct;
  for (int i = 0; i < kBlocks; ++i) {
    auto* block = static_cast<char*>(cache.take(kMiB));
    block[0] = 1;
    distinct.insert(block);
    while (char* before = travelling.load()) travelling.wait(before);
    travelling = block;  // so three are out at most: here, on the way, there
    travelling.notify_one();
  }
  other.join();
  CHECK(distinct.size() <= 3);
  CHECK(cache.free_bytes() == distinct.size() * kMiB);
}

TEST_CASE("a cache outlives its thread, and a later thread takes it over with the blocks in use") {
  const BlockCache* own = &pp::profile::thread_block_cache();
  BlockCache* cache = nullptr;
  void* block = nullptr;
  std::thread([&] {
    cache = &pp::profile::thread_block_cache();
    CHECK(cache == &pp::profile::thread_block_cache());
    cache->give(cache->take(2 * kMiB), 2 * kMiB);
    block = cache->take(kMiB);
  }).join();
  CHECK(cache != own);
  CHECK(cache->free_bytes() == 0);  // the 2 MiB went back
  cache->give(block, kMiB);
  std::thread([&] {
    CHECK(&pp::profile::thread_block_cache() == cache);
    CHECK(cache->take(kMiB) == block);
    cache->give(block, kMiB);
  }).join();
}

TEST_SUITE_END();
