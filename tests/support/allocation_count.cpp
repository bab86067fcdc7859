#include "tests/support/allocation_count.h"

#include <cstdlib>
#include <new>

// Set by the linker.
extern "C" const char __executable_start, etext;  // NOLINT(bugprone-reserved-identifier)

namespace pp::test {
namespace {

thread_local Allocations t_count;

void* counted(void* block, const void* caller) {
  if (block == nullptr) throw std::bad_alloc();
  ++t_count.all;
  if (caller >= &__executable_start && caller < &etext) ++t_count.own;
  return block;
}

}  // namespace

Allocations allocations() { return t_count; }

}  // namespace pp::test

void* operator new(std::size_t bytes) {
  return pp::test::counted(std::malloc(bytes == 0 ? 1 : bytes), __builtin_return_address(0));
}

void* operator new(std::size_t bytes, std::align_val_t alignment) {
  const auto multiple = static_cast<std::size_t>(alignment);
  return pp::test::counted(std::aligned_alloc(multiple, (bytes + multiple - 1) / multiple * multiple),
                           __builtin_return_address(0));
}

void operator delete(void* block) noexcept { std::free(block); }
void operator delete(void* block, std::size_t) noexcept { std::free(block); }
void operator delete(void* block, std::align_val_t) noexcept { std::free(block); }
void operator delete(void* block, std::size_t, std::align_val_t) noexcept { std::free(block); }
