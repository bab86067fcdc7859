#include "libprofile/measure/block_cache.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <limits>

namespace pp::profile {
namespace {

void* map_pages(std::size_t bytes) {
  void* block = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return block == MAP_FAILED ? nullptr : block;
}

}  // namespace

std::size_t block_class(std::size_t bytes) {
  const std::size_t eighth = std::bit_floor(bytes) / 8;
  if (bytes > std::numeric_limits<std::size_t>::max() - eighth) return bytes;
  return (bytes + eighth - 1) / eighth * eighth;
}

BlockCache::~BlockCache() { release_free_blocks(); }

void* BlockCache::take(std::size_t bytes) {
  const std::size_t size = block_class(bytes);
  const std::lock_guard lock(mutex_);
  if (const auto kept = free_.find(size); kept != free_.end() && !kept->second.empty()) {
    void* block = kept->second.back();
    kept->second.pop_back();
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
  if (block != nullptr) use(size);
  return block;
}

void BlockCache::give(void* block, std::size_t bytes) noexcept {
  const std::size_t size = block_class(bytes);
  const std::lock_guard lock(mutex_);
  used_bytes_ -= size;
  try {
    free_[size].push_back(block);
    free_bytes_ += size;
  } catch (...) {  // no memory for the list's own node
    munmap(block, size);
  }
}

std::size_t BlockCache::free_bytes() const {
  const std::lock_guard lock(mutex_);
  return free_bytes_;
}

bool BlockCache::would_hoard(std::size_t more) const {
  return used_bytes_ + free_bytes_ + more > std::max(peak_used_bytes_, used_bytes_ + more) / 4 * 5 + kSlack;
}

void BlockCache::use(std::size_t bytes) {
  used_bytes_ += bytes;
  peak_used_bytes_ = std::max(peak_used_bytes_, used_bytes_);
}

void BlockCache::release_free_blocks() noexcept {
  for (const auto& [size, blocks] : free_)
    for (void* block : blocks) munmap(block, size);
  free_.clear();
  free_bytes_ = 0;
}

}  // namespace pp::profile
