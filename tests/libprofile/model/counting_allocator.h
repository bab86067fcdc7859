// Counts the bytes of all live CPU tensors.
#pragma once

#include <c10/core/Allocator.h>

#include <atomic>
#include <cstdint>

namespace pp::model::test {

class CountingAllocator final : public c10::Allocator {
 public:
  /// The process's CPU allocator from the first call on; tensors made before are not counted.
  static CountingAllocator& install();

  std::int64_t live() const { return live_; }
  /// The most that was live since watch_peak(), in a test of one thread.
  std::int64_t peak() const { return peak_; }
  void watch_peak() { peak_ = live(); }

  c10::DataPtr allocate(std::size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* to, const void* from, std::size_t bytes) const override;

 private:
  std::atomic<std::int64_t> live_{0}, peak_{0};
};

}  // namespace pp::model::test
