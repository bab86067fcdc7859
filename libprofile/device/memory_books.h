// The books behind MemoryAccount: counters per account, who is charged for a block, and the blocks of
// another allocator: CUDA's, which reports what it does but leaves no room for a header before a block.
// Internal to the memory meter and the CUDA backend. Torch-free.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "libprofile/core/profile.h"

namespace pp::profile::detail {

/// Referenced by handles, scopes and live blocks; deleted with the last of them.
struct MemoryCounters {
  explicit MemoryCounters(std::int64_t bytes) : limit(bytes) {}

  void retain() { references.fetch_add(1, std::memory_order_relaxed); }
  void release() {
    if (references.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }
  /// False, and nothing changed, when the block does not fit.
  bool add(std::int64_t bytes) {
    const std::int64_t now = live.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    if (now > limit) {
      live.fetch_sub(bytes, std::memory_order_relaxed);
      return false;
    }
    raise_peak(now);
    retain();
    return true;
  }
  void add_unlimited(std::int64_t bytes) {
    raise_peak(live.fetch_add(bytes, std::memory_order_relaxed) + bytes);
    retain();
  }
  void raise_peak(std::int64_t now) {
    std::int64_t seen = peak.load(std::memory_order_relaxed);
    while (seen < now && !peak.compare_exchange_weak(seen, now, std::memory_order_relaxed)) {
    }
  }
  std::int64_t next_serial() { return serials.fetch_add(1, std::memory_order_relaxed); }
  void remove(std::int64_t bytes) {
    live.fetch_sub(bytes, std::memory_order_relaxed);
    release();
  }

  const std::int64_t limit;
  std::atomic<std::int64_t> live{0};
  std::atomic<std::int64_t> peak{0};
  std::atomic<std::int64_t> serials{0};
  std::atomic<std::int64_t> references{1};
};

/// What one block is charged as.
struct Charge {
  MemoryCounters* owner = nullptr;  ///< null: no account
  std::int64_t bytes = 0;
  std::int64_t serial = 0;  ///< how many blocks the owner had charged before this one

  void end() {
    if (owner != nullptr) owner->remove(bytes);
    owner = nullptr;
  }
};

/// The account that the calling thread charges for memory of this kind; null: none. Set by ChargeMemory only.
MemoryCounters*& charged_account(DeviceKind kind);

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
