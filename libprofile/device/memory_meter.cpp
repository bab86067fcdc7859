#include "libprofile/device/memory_meter.h"

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <cstdlib>
#include <new>
#include <utility>

#include "libprofile/device/block_cache.h"
#include "libprofile/device/memory_books.h"

namespace pp::profile {

namespace {

using detail::Charge;
using detail::MemoryCounters;

constexpr std::size_t kAlignment = 64;  // what Torch's own CPU allocator promises, and the size of the header

/// Stands before each block, so that a free finds account, size and origin from the address alone.
struct alignas(kAlignment) BlockHeader {
  Charge charge;
  BlockCache* cache;  ///< that it came from; null: malloc
};
static_assert(sizeof(BlockHeader) == kAlignment);

#ifdef __SANITIZE_ADDRESS__
constexpr bool kReuseLargeBlocks = false;  // AddressSanitizer watches malloc's blocks only
#else
constexpr bool kReuseLargeBlocks = true;
#endif

/// For a whole block of `bytes`, header included; null: malloc's business.
BlockCache* cache_for(std::size_t bytes) {
  return kReuseLargeBlocks && bytes >= BlockCache::kSmallest ? &thread_block_cache() : nullptr;
}

/// What a tensor of `bytes` occupies with its header, a multiple of the alignment; 0 when no size holds it.
std::size_t block_bytes(std::size_t bytes) {
  const std::size_t rounded = (bytes + sizeof(BlockHeader) + kAlignment - 1) / kAlignment * kAlignment;
  return rounded < bytes ? 0 : rounded;
}

void free_block(void* data) {
  if (data == nullptr) return;
  BlockHeader* header = static_cast<BlockHeader*>(data) - 1;
  header->charge.end();
  if (header->cache != nullptr)
    header->cache->give(header, block_bytes(static_cast<std::size_t>(header->charge.bytes)));
  else
    std::free(header);
}

void* allocate_block(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  MemoryCounters* owner = detail::charged_account(DeviceKind::cpu);
  TORCH_CHECK_WITH(OutOfMemoryError, owner == nullptr || owner->add(static_cast<std::int64_t>(bytes)),
                   "out of memory: ", bytes, " bytes asked for, ", owner->live.load(), " of ", owner->limit,
                   " bytes in use");
  const std::size_t needed = block_bytes(bytes);
  BlockCache* cache = cache_for(needed);
  void* memory = nullptr;
  if (needed > 0) memory = cache != nullptr ? cache->take(needed) : std::aligned_alloc(kAlignment, needed);
  if (memory == nullptr && owner != nullptr) owner->remove(static_cast<std::int64_t>(bytes));
  TORCH_CHECK_WITH(OutOfMemoryError, memory != nullptr, "out of memory: the system refused ", bytes, " bytes");
  const Charge charge{owner, static_cast<std::int64_t>(bytes), owner == nullptr ? 0 : owner->next_serial()};
  return new (memory) BlockHeader{charge, cache} + 1;
}

/// visit(Charge&) for a block of ours or of CUDA's allocator, whose context is its address; nothing for other
/// memory, also where it refers to such a block. No other thread may change the charge meanwhile.
template <class Visit>
void visit_charge(const c10::DataPtr& block, Visit&& visit) {
  if (block.get_deleter() == &free_block && block.get_context() != nullptr) {
    visit((static_cast<BlockHeader*>(block.get_context()) - 1)->charge);
  } else if (block.get_context() == block.get()) {
    detail::foreign_blocks().visit(reinterpret_cast<std::uintptr_t>(block.get()), visit);
  }
}

/// Data and context of a block are one address and the deleter is always free_block, as oneDNN's raw_allocate()
/// demands.
class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    void* data = allocate_block(bytes);
    return {data, data, &free_block, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }
  void copy_data(void* target, const void* source, std::size_t bytes) const override {
    default_copy_data(target, source, bytes);
  }
};

}  // namespace

void install_memory_meter() {
  if (memory_meter_installed()) return;
  // Lives as long as the process: static tensors may be freed after any destructor of ours.
  static auto* const allocator = new CountingAllocator;
  c10::SetCPUAllocator(allocator, /*priority=*/1);
}

bool memory_meter_installed() { return c10::GetCPUAllocator()->raw_deleter() == &free_block; }

MemoryAccount::MemoryAccount(Bytes limit) : counters_(new MemoryCounters(limit.value)) {}

MemoryAccount::MemoryAccount(const MemoryAccount& other) noexcept : counters_(other.counters_) {
  counters_->retain();
}

MemoryAccount& MemoryAccount::operator=(const MemoryAccount& other) noexcept {
  other.counters_->retain();
  std::exchange(counters_, other.counters_)->release();
  return *this;
}

MemoryAccount::~MemoryAccount() { counters_->release(); }

Bytes MemoryAccount::live() const { return Bytes(counters_->live.load(std::memory_order_relaxed)); }

Bytes MemoryAccount::peak() const { return Bytes(counters_->peak.load(std::memory_order_relaxed)); }

void MemoryAccount::reset_peak() { counters_->peak.store(counters_->live.load(std::memory_order_relaxed)); }

std::int64_t MemoryAccount::blocks() const { return counters_->serials.load(std::memory_order_relaxed); }

bool MemoryAccount::charged_since(const c10::DataPtr& block, std::int64_t mark) const {
  bool charged = false;
  visit_charge(block,
               [&](const Charge& charge) { charged = charge.owner == counters_ && charge.serial >= mark; });
  return charged;
}

void end_charge(const c10::DataPtr& block) {
  visit_charge(block, [](Charge& charge) { charge.end(); });
}

Bytes MemoryAccount::limit() const { return Bytes(counters_->limit); }

MemoryCharge::MemoryCharge(const MemoryAccount& account, Bytes bytes) : account_(account), bytes_(bytes) {
  account_.counters_->add_unlimited(bytes_.value);
}

MemoryCharge::~MemoryCharge() { account_.counters_->remove(bytes_.value); }

ChargeMemory::ChargeMemory(const MemoryAccount& account, DeviceKind kind)
    : account_(account),
      kind_(kind),
      previous_(std::exchange(detail::charged_account(kind), account_.counters_)) {}

ChargeMemory::~ChargeMemory() { detail::charged_account(kind_) = previous_; }

}  // namespace pp::profile
