#include "tests/libprofile/model/counting_allocator.h"

#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

namespace pp::model::test {
namespace {

constexpr std::size_t kHeader = 64;  // keeps the alignment; holds the size

CountingAllocator& the_allocator() {
  static CountingAllocator allocator;
  return allocator;
}

}  // namespace

CountingAllocator& CountingAllocator::install() {
  c10::SetCPUAllocator(&the_allocator(), /*priority=*/1);
  return the_allocator();
}

c10::DataPtr CountingAllocator::allocate(std::size_t bytes) {
  char* block =
      static_cast<char*>(std::aligned_alloc(kHeader, kHeader + (bytes + kHeader - 1) / kHeader * kHeader));
  if (block == nullptr) throw std::bad_alloc();
  std::memcpy(block, &bytes, sizeof bytes);
  live_ += static_cast<std::int64_t>(bytes);
  peak_ = std::max(peak_.load(), live_.load());
  // oneDNN takes raw pointers: data and context must be the same.
  return {block + kHeader, block + kHeader, raw_deleter(), c10::Device(c10::DeviceType::CPU)};
}

c10::DeleterFnPtr CountingAllocator::raw_deleter() const {
  return [](void* data) {
    if (data == nullptr) return;
    char* block = static_cast<char*>(data) - kHeader;
    std::size_t bytes = 0;
    std::memcpy(&bytes, block, sizeof bytes);
    the_allocator().live_ -= static_cast<std::int64_t>(bytes);
    std::free(block);
  };
}

void CountingAllocator::copy_data(void* to, const void* from, std::size_t bytes) const {
  std::memcpy(to, from, bytes);
}

}  // namespace pp::model::test
