// Preloaded: memory that runs out (tests/lab/faults/fault.h). Calls of kind `memory` ask for PP_FAULT_BYTES or
// more, while main() runs: malloc and its kin, what LibTorch takes for tensors, and mmap() without a file.
#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>

#include "tests/lab/faults/fault.h"

// The C library's own, by their other names.
extern "C" {
void* __libc_malloc(std::size_t bytes);                           // NOLINT(bugprone-reserved-identifier)
void* __libc_calloc(std::size_t count, std::size_t bytes);        // NOLINT(bugprone-reserved-identifier)
void* __libc_realloc(void* block, std::size_t bytes);             // NOLINT(bugprone-reserved-identifier)
void* __libc_memalign(std::size_t alignment, std::size_t bytes);  // NOLINT(bugprone-reserved-identifier)
}

namespace {

using Main = int (*)(int, char**, char**);

std::atomic<bool> counting = false;
std::size_t least = 0;
Main real_main = nullptr;

thread_local int loading = 0;
struct {
  std::uintptr_t begin = 0, end = 0;
} loader;

/// Where the loader stands in memory.
void find_loader() {
  loader.begin = ::getauxval(AT_BASE);
  const auto* const header = reinterpret_cast<const ElfW(Ehdr)*>(loader.begin);
  if (header == nullptr) return;
  const auto* const segments = reinterpret_cast<const ElfW(Phdr)*>(loader.begin + header->e_phoff);
  for (int i = 0; i < header->e_phnum; ++i) {
    if (segments[i].p_type == PT_LOAD)
      loader.end = std::max(loader.end, loader.begin + segments[i].p_vaddr + segments[i].p_memsz);
  }
}

int counted_main(int count, char** words, char** environment) {
  const char* const bytes = ::getenv("PP_FAULT_BYTES");
  least = bytes ? static_cast<std::size_t>(::atoll(bytes)) : 0;
  find_loader();
  counting = true;
  const int code = real_main(count, words, environment);
  counting = false;
  return code;
}

bool fails(std::size_t bytes, const void* caller = nullptr) {
  const auto from = reinterpret_cast<std::uintptr_t>(caller);
  if (!counting || loading > 0 || bytes < least || (from >= loader.begin && from < loader.end) ||
      pp::faults::next_call("memory", "") != pp::faults::Effect::failed)
    return false;
  errno = ENOMEM;
  return true;
}

}  // namespace

extern "C" int __libc_start_main(Main main, int count, char** words, void (*init)(), void (*fini)(),
                                 void (*end_of_loader)(), void* stack) {
  real_main = main;
  using Start = int (*)(Main, int, char**, void (*)(), void (*)(), void (*)(), void*);
  const auto real = reinterpret_cast<Start>(::dlsym(RTLD_NEXT, "__libc_start_main"));
  return real(counted_main, count, words, init, fini, end_of_loader, stack);
}

extern "C" void* dlopen(const char* file, int mode) {
  static const auto real = reinterpret_cast<void* (*)(const char*, int)>(::dlsym(RTLD_NEXT, "dlopen"));
  ++loading;
  void* const library = real(file, mode);
  --loading;
  return library;
}

extern "C" void* malloc(std::size_t bytes) {
  return fails(bytes, __builtin_return_address(0)) ? nullptr : __libc_malloc(bytes);
}

extern "C" void* calloc(std::size_t count, std::size_t bytes) {
  return fails(count * bytes, __builtin_return_address(0)) ? nullptr : __libc_calloc(count, bytes);
}

extern "C" void* realloc(void* block, std::size_t bytes) {
  return fails(bytes, __builtin_return_address(0)) ? nullptr : __libc_realloc(block, bytes);
}

extern "C" void* memalign(std::size_t alignment, std::size_t bytes) {
  return fails(bytes) ? nullptr : __libc_memalign(alignment, bytes);
}

extern "C" void* aligned_alloc(std::size_t alignment, std::size_t bytes) { return memalign(alignment, bytes); }

extern "C" int posix_memalign(void** block, std::size_t alignment, std::size_t bytes) {
  if (fails(bytes)) return ENOMEM;
  *block = __libc_memalign(alignment, bytes);
  return *block ? 0 : ENOMEM;
}

extern "C" void* mmap(void* at, std::size_t bytes, int protection, int flags, int file, off_t offset) noexcept {
  if (file < 0 && fails(bytes)) return MAP_FAILED;
  return reinterpret_cast<void*>(::syscall(SYS_mmap, at, bytes, protection, flags, file, offset));
}

extern "C" void* mmap64(void* at, std::size_t bytes, int protection, int flags, int file,
                        off_t offset) noexcept {
  return mmap(at, bytes, protection, flags, file, offset);
}
