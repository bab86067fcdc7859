#include "libprofile/device/block_cache.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace pp::profile {
namespace {

void* map_pages(std::size_t bytes) {
  void* block = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return block == MAP_FAILED ? nullptr : block;
}

/// Caches whose threads have ended.
class SpareCaches {
 public:
  BlockCache& take() {
    const std::lock_guard lock(mutex_);
    if (caches_.empty()) return *new BlockCache;
    BlockCache* cache = caches_.back();
    caches_.pop_back();
    return *cache;
  }

  void give(BlockCache& cache) {
    cache.release_free_blocks();
    const std::lock_guard lock(mutex_);
    caches_.push_back(&cache);
  }

 private:
  std::mutex mutex_;
  std::vector<BlockCache*> caches_;
};

/// Lives as long as the process: threads may end after any destructor of ours.
SpareCaches& spare_caches() {
  static auto* caches = new SpareCaches;
  return *caches;
}

thread_local BlockCache* this_threads_cache = nullptr;

/// Hands the thread's cache on at its end.
struct AtThreadEnd {
  ~AtThreadEnd() {
    if (this_threads_cache != nullptr) spare_caches().give(*std::exchange(this_threads_cache, nullptr));
  }
};

}  // namespace

std::size_t block_class(std::size_t bytes) {
  const std::size_t eighth = std::max<std::size_t>(1, std::bit_floor(bytes) / 8);
  if (bytes > std::numeric_limits<std::size_t>::max() - eighth) return bytes;
  return (bytes + eighth - 1) / eighth * eighth;
}

BlockCache& thread_block_cache() {
  if (this_threads_cache == nullptr) {
    this_threads_cache = &spare_caches().take();
    static thread_local const AtThreadEnd at_thread_end;
  }
  return *this_threads_cache;
}

BlockCache::~BlockCache() { release_free_blocks(); }

void* BlockCache::take(std::size_t bytes) {
  const std::size_t size = block_class(bytes);
  take_in_returned();
  if (const auto kept = free_.find(size); kept != free_.end() && kept->second != nullptr) {
    FreeBlock* block = kept->second;
    kept->second = block->next;
    free_bytes_ -= size;
    use(size);
    return block;
  }
  if (would_hoard(size)) release_free_blocks();
  void* block = map_pages(size);
  if (block == nullptr && free_bytes_ > 0) {
    release_free_blocks();
    block = map_pages(size);
  }
  if (block != nullptr) {
    free_.try_emplace(size, nullptr);  // so that giving it back needs no memory
    use(size);
  }
  return block;
}

void BlockCache::give(void* block, std::size_t bytes) noexcept {
  auto* last = new (block) FreeBlock{returned_.load(std::memory_order_relaxed), block_class(bytes)};
  while (!returned_.compare_exchange_weak(last->next, last, std::memory_order_release,
                                          std::memory_order_relaxed)) {
  }
}

std::size_t BlockCache::free_bytes() {
  take_in_returned();
  return free_bytes_;
}

void BlockCache::take_in_returned() noexcept {
  if (returned_.load(std::memory_order_relaxed) == nullptr) return;
  FreeBlock* oldest_first = nullptr;
  for (FreeBlock* block = returned_.exchange(nullptr, std::memory_order_acquire); block != nullptr;) {
    FreeBlock* before = std::exchange(block->next, oldest_first);
    oldest_first = std::exchange(block, before);
  }
  while (oldest_first != nullptr) {
    FreeBlock* block = std::exchange(oldest_first, oldest_first->next);
    block->next = std::exchange(free_.find(block->size)->second, block);
    free_bytes_ += block->size;
    used_bytes_ -= block->size;
  }
}

bool BlockCache::would_hoard(std::size_t more) const {
  return used_bytes_ + free_bytes_ + more > std::max(peak_used_bytes_, used_bytes_ + more) / 4 * 5 + kSlack;
}

void BlockCache::use(std::size_t bytes) {
  used_bytes_ += bytes;
  peak_used_bytes_ = std::max(peak_used_bytes_, used_bytes_);
}

void BlockCache::release_free_blocks() noexcept {
  take_in_returned();
  for (auto& [size, first] : free_)
    while (first != nullptr) munmap(std::exchange(first, first->next), size);
  free_bytes_ = 0;
}

}  // namespace pp::profile
