// The books of blocks that another allocator hands out: CUDA's, which reports what it does but leaves no room
// for a header before a block. Torch-free. Internal to the memory meter and the CUDA backend.
#pragma once

#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "libprofile/device/memory_counters.h"

namespace pp::profile::detail {

/// All members may be called from any thread; none allocates memory of the kind that it counts.
class ForeignBlocks {
 public:
  /// Charged to the account that the calling thread charges for CUDA memory. The account's limit is not looked
  /// at: the allocator itself knows when the device is full.
  void made(std::uintptr_t address, std::int64_t bytes);
  void freed(std::uintptr_t address);

  /// visit(Charge&) under the lock; nothing when the block is not known.
  template <class Visit>
  void visit(std::uintptr_t address, Visit&& visit) {
    const std::lock_guard lock(mutex_);
    const auto found = charges_.find(address);
    if (found != charges_.end()) visit(found->second);
  }

 private:
  std::mutex mutex_;
  std::unordered_map<std::uintptr_t, Charge> charges_;  ///< of blocks that were charged when made
};

/// Those of the process; lives as long as it does, because static tensors may be freed after any destructor.
ForeignBlocks& foreign_blocks();

}  // namespace pp::profile::detail
