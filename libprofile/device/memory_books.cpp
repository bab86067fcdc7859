#include "libprofile/device/memory_books.h"

namespace pp::profile::detail {

MemoryCounters*& charged_account(DeviceKind kind) {
  thread_local MemoryCounters* accounts[2] = {nullptr, nullptr};
  return accounts[kind == DeviceKind::cuda ? 1 : 0];
}

void ForeignBlocks::made(std::uintptr_t address, std::int64_t bytes) {
  MemoryCounters* owner = charged_account(DeviceKind::cuda);
  if (owner == nullptr) return;
  owner->add_unlimited(bytes);
  const std::lock_guard lock(mutex_);
  charges_.insert_or_assign(address, Charge{owner, bytes, owner->next_serial()});
}

void ForeignBlocks::freed(std::uintptr_t address) {
  const std::lock_guard lock(mutex_);
  const auto found = charges_.find(address);
  if (found == charges_.end()) return;
  found->second.end();
  charges_.erase(found);
}

ForeignBlocks& foreign_blocks() {
  static auto* blocks = new ForeignBlocks;
  return *blocks;
}

}  // namespace pp::profile::detail
