// The books behind MemoryAccount: counters per account, and who is charged for a block. Internal to the memory
// meter. Torch-free.
#pragma once

#include <atomic>
#include <cstdint>

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

}  // namespace pp::profile::detail
