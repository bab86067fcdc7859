// Large blocks of memory that stay with the process between uses. A training step asks for the same sizes again
// and again; handed back to the system, each block would be cleared and faulted in anew, page by page and under
// one lock for all threads (glibc's per-thread heaps of 64 MiB do that whatever mallopt() says). Torch-free.
#pragma once

#include <atomic>
#include <cstddef>
#include <map>

namespace pp::profile {

/// Blocks of one thread by size class, eight classes to a doubling, so that a block is at most 1/8 larger than
/// asked for. Used and free blocks together hold at most a quarter more, and kSlack, than the blocks in use
/// ever held at once: before the system is asked for more than that, all free ones go back.
///
/// Only its thread takes blocks; any thread gives them back, by a list without a lock that the next take()
/// empties. So blocks that travel from worker to worker return to where they are needed again.
class BlockCache {
 public:
  /// Smaller blocks are malloc's business.
  static constexpr std::size_t kSmallest = std::size_t{128} << 10;
  static constexpr std::size_t kSlack = std::size_t{16} << 20;

  BlockCache() = default;
  BlockCache(const BlockCache&) = delete;
  BlockCache& operator=(const BlockCache&) = delete;
  ~BlockCache();

  /// At least `bytes`, which is kSmallest or more, aligned to a page; null when the system refuses them even
  /// after the free blocks were given back. The content is arbitrary.
  void* take(std::size_t bytes);
  /// Returns what take(bytes) gave; `bytes` is the same number. Any thread.
  void give(void* block, std::size_t bytes) noexcept;
  /// Gives the free blocks back to the system.
  void release_free_blocks() noexcept;
  /// Bytes of the blocks that are not in use.
  std::size_t free_bytes();

 private:
  /// Stands in a free block.
  struct FreeBlock {
    FreeBlock* next;
    std::size_t size;
  };
  void take_in_returned() noexcept;
  bool would_hoard(std::size_t more) const;
  void use(std::size_t bytes);

  std::atomic<FreeBlock*> returned_{nullptr};  ///< given back since the last take(), the last one first
  std::map<std::size_t, FreeBlock*> free_;     ///< by class size, the last one given back first
  std::size_t free_bytes_ = 0;
  std::size_t used_bytes_ = 0;
  std::size_t peak_used_bytes_ = 0;
};

/// The size of the class that holds `bytes`: the next multiple of an eighth of the power of two below.
std::size_t block_class(std::size_t bytes);

/// The cache of the calling thread. When the thread ends its free blocks go back, and a later thread takes over
/// the cache; so it lives as long as the process, and blocks may outlive the thread that took them.
BlockCache& thread_block_cache();

}  // namespace pp::profile
