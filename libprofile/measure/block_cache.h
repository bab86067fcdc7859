// Large blocks of memory that stay with the process between uses. A training step asks for the same sizes again
// and again; handed back to the system, each block would be cleared and faulted in anew, page by page and under
// one lock for all threads (glibc's per-thread heaps of 64 MiB do that whatever mallopt() says). Torch-free.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <vector>

namespace pp::profile {

/// Blocks by size class, eight classes to a doubling, so that a block is at most 1/8 larger than asked for.
/// Used and free blocks together hold at most a quarter more, and kSlack, than the blocks in use ever held at
/// once: before the system is asked for more than that, all free ones go back. All members may be called from
/// any thread; a block that is there already costs a lock and a look-up.
class BlockCache {
 public:
  /// Smaller blocks are malloc's business.
  static constexpr std::size_t kSmallest = std::size_t{128} << 10;
  static constexpr std::size_t kSlack = std::size_t{64} << 20;

  BlockCache() = default;
  BlockCache(const BlockCache&) = delete;
  BlockCache& operator=(const BlockCache&) = delete;
  ~BlockCache();

  /// At least `bytes`, which is kSmallest or more, aligned to a page; null when the system refuses them even
  /// after all free blocks were given back. The content is arbitrary.
  void* take(std::size_t bytes);
  /// Returns what take(bytes) gave; `bytes` is the same number.
  void give(void* block, std::size_t bytes) noexcept;
  /// Bytes of the blocks nobody uses.
  std::size_t free_bytes() const;

 private:
  bool would_hoard(std::size_t more) const;
  void use(std::size_t bytes);
  void release_free_blocks() noexcept;

  mutable std::mutex mutex_;
  std::map<std::size_t, std::vector<void*>> free_;  ///< by class size
  std::size_t free_bytes_ = 0;
  std::size_t used_bytes_ = 0;
  std::size_t peak_used_bytes_ = 0;
};

/// The size of the class that holds `bytes`: the next multiple of an eighth of the power of two below.
std::size_t block_class(std::size_t bytes);

}  // namespace pp::profile
