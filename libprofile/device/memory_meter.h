// Live and peak bytes of tensors, counted exactly: on the CPU by an allocator of our own, on CUDA devices by
// the trace of LibTorch's. A thread charges what it allocates to a MemoryAccount; a block stays charged to that
// account wherever it travels and whoever frees it. For the profiler (per layer) and the runtime (per worker).
// Torch-free. Not seen: buffers inside MKL and oneDNN, and what Torch's intra-op helper threads allocate,
// because they carry no account. CUDA's libraries take theirs from LibTorch's allocator: it is counted.
#pragma once

#include <cstdint>
#include <limits>

#include "libprofile/core/profile.h"
#include "libprofile/core/units.h"

namespace c10 {
class DataPtr;
}

namespace pp::profile {

/// Installs the counting allocator for the whole process; later calls do nothing. Call before any tensor exists
/// (blocks that are older are freed correctly but never counted). prepare_process() calls it. An allocation
/// costs about 30 ns more.
void install_memory_meter();
/// True once install_memory_meter() has run: without it every account stays at 0.
bool memory_meter_installed();

namespace detail {
struct MemoryCounters;
}

/// Counts the live blocks charged to it. Copies are handles of one account; blocks keep it alive, so a tensor
/// may outlive every handle. All members may be called from any thread; `peak` is exact when one thread
/// allocates at a time.
class MemoryAccount {
 public:
  /// A CPU allocation that would lift live() above `limit` throws c10::OutOfMemoryError, as a CUDA device that
  /// is full does by itself.
  explicit MemoryAccount(Bytes limit = Bytes(std::numeric_limits<std::int64_t>::max()));
  MemoryAccount(const MemoryAccount& other) noexcept;
  MemoryAccount& operator=(const MemoryAccount& other) noexcept;
  ~MemoryAccount();

  /// Bytes asked for by tensors and not freed yet, without the 64-byte header of each block.
  Bytes live() const;
  /// The largest live() since construction or the last reset_peak().
  Bytes peak() const;
  /// From now on the peak starts at live().
  void reset_peak();
  Bytes limit() const;
  /// How many blocks have been charged so far: a mark for charged_since().
  std::int64_t blocks() const;
  /// True when `block` is charged to this account and was allocated when blocks() was `mark` or more.
  bool charged_since(const c10::DataPtr& block, std::int64_t mark) const;

 private:
  friend class ChargeMemory;
  friend class MemoryCharge;
  detail::MemoryCounters* counters_;
};

/// While it exists, blocks of memory of this kind that the calling thread allocates are charged to `account`;
/// scopes of a kind nest, the innermost counts. A worker makes one at its thread's start. Destroy it on the
/// thread that made it.
class ChargeMemory {
 public:
  explicit ChargeMemory(const MemoryAccount& account, DeviceKind kind = DeviceKind::cpu);
  ~ChargeMemory();
  ChargeMemory(const ChargeMemory&) = delete;
  ChargeMemory& operator=(const ChargeMemory&) = delete;

 private:
  MemoryAccount account_;
  DeviceKind kind_;
  detail::MemoryCounters* previous_;
};

/// From now on no account is charged for `block`. No other thread may hold it.
void end_charge(const c10::DataPtr& block);

/// Bytes charged to an account as if they were a block of their own, from construction to destruction: for
/// memory that another account's block provides. The limit is not looked at.
class MemoryCharge {
 public:
  MemoryCharge(const MemoryAccount& account, Bytes bytes);
  ~MemoryCharge();
  MemoryCharge(const MemoryCharge&) = delete;
  MemoryCharge& operator=(const MemoryCharge&) = delete;

 private:
  MemoryAccount account_;
  Bytes bytes_;
};

}  // namespace pp::profile
