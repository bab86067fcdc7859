// Preloaded: a disk that fails (tests/lab/faults/fault.h). Kinds of calls: read, write, fsync, rename, link,
// mkdir, truncate, map (of files), open (for reading) and create (for writing).
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "tests/lab/faults/fault.h"

namespace {

using pp::faults::Effect;
using Path = std::array<char, 4096>;

template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

/// Of a call on a path; a relative one is that of the working folder.
Effect of_path(std::string_view call, const char* path) {
  if (!pp::faults::is_wanted(call)) return Effect::none;
  if (path[0] == '/') return pp::faults::next_call(call, path);
  const int error = errno;
  Path whole{};
  if (::getcwd(whole.data(), whole.size()) == nullptr) whole[0] = '\0';
  const std::size_t length = std::strlen(whole.data());
  std::snprintf(whole.data() + length, whole.size() - length, "/%s", path);
  errno = error;
  return pp::faults::next_call(call, whole.data());
}

Effect of_descriptor(std::string_view call, int descriptor) {
  if (!pp::faults::is_wanted(call)) return Effect::none;
  const int error = errno;
  Path path{}, link{};
  std::snprintf(link.data(), link.size(), "/proc/self/fd/%d", descriptor);
  const ssize_t length = ::readlink(link.data(), path.data(), path.size());
  errno = error;
  if (length <= 0) return Effect::none;
  return pp::faults::next_call(call, std::string_view(path.data(), static_cast<std::size_t>(length)));
}

/// How many of `size` bytes the call takes: all, half of them, or -1.
ssize_t share(Effect effect, std::size_t size) {
  if (effect == Effect::failed) return -1;
  const bool all = effect == Effect::none || size < 2;
  return static_cast<ssize_t>(all ? size : size / 2);
}

Effect of_open(const char* path, int flags) {
  const bool writes = (flags & O_ACCMODE) != O_RDONLY || (flags & O_CREAT) != 0;
  return of_path(writes ? "create" : "open", path);
}

}  // namespace

extern "C" ssize_t read(int descriptor, void* out, std::size_t size) {
  static const auto real = next<ssize_t (*)(int, void*, std::size_t)>("read");
  const ssize_t taken = share(of_descriptor("read", descriptor), size);
  return taken < 0 ? -1 : real(descriptor, out, static_cast<std::size_t>(taken));
}

extern "C" ssize_t pread(int descriptor, void* out, std::size_t size, off_t offset) {
  static const auto real = next<ssize_t (*)(int, void*, std::size_t, off_t)>("pread");
  const ssize_t taken = share(of_descriptor("read", descriptor), size);
  return taken < 0 ? -1 : real(descriptor, out, static_cast<std::size_t>(taken), offset);
}

extern "C" ssize_t pread64(int descriptor, void* out, std::size_t size, off_t offset) {
  return pread(descriptor, out, size, offset);
}

extern "C" ssize_t write(int descriptor, const void* bytes, std::size_t size) {
  static const auto real = next<ssize_t (*)(int, const void*, std::size_t)>("write");
  const ssize_t taken = share(of_descriptor("write", descriptor), size);
  return taken < 0 ? -1 : real(descriptor, bytes, static_cast<std::size_t>(taken));
}

extern "C" ssize_t pwrite(int descriptor, const void* bytes, std::size_t size, off_t offset) {
  static const auto real = next<ssize_t (*)(int, const void*, std::size_t, off_t)>("pwrite");
  const ssize_t taken = share(of_descriptor("write", descriptor), size);
  return taken < 0 ? -1 : real(descriptor, bytes, static_cast<std::size_t>(taken), offset);
}

extern "C" ssize_t pwrite64(int descriptor, const void* bytes, std::size_t size, off_t offset) {
  return pwrite(descriptor, bytes, size, offset);
}

extern "C" ssize_t writev(int descriptor, const iovec* pieces, int count) {
  static const auto real = next<ssize_t (*)(int, const iovec*, int)>("writev");
  const Effect effect = of_descriptor("write", descriptor);
  if (effect == Effect::failed) return -1;
  return real(descriptor, pieces, effect == Effect::shortened ? std::max(1, count / 2) : count);
}

extern "C" int fsync(int descriptor) {
  static const auto real = next<int (*)(int)>("fsync");
  return of_descriptor("fsync", descriptor) == Effect::failed ? -1 : real(descriptor);
}

extern "C" int fdatasync(int descriptor) {
  static const auto real = next<int (*)(int)>("fdatasync");
  return of_descriptor("fsync", descriptor) == Effect::failed ? -1 : real(descriptor);
}

extern "C" int ftruncate(int descriptor, off_t size) noexcept {
  static const auto real = next<int (*)(int, off_t)>("ftruncate");
  return of_descriptor("truncate", descriptor) == Effect::failed ? -1 : real(descriptor, size);
}

extern "C" int rename(const char* from, const char* to) noexcept {
  static const auto real = next<int (*)(const char*, const char*)>("rename");
  return of_path("rename", to) == Effect::failed ? -1 : real(from, to);
}

extern "C" int linkat(int from_folder, const char* from, int to_folder, const char* to, int flags) noexcept {
  static const auto real = next<int (*)(int, const char*, int, const char*, int)>("linkat");
  return of_path("link", to) == Effect::failed ? -1 : real(from_folder, from, to_folder, to, flags);
}

extern "C" int mkdir(const char* path, mode_t mode) noexcept {
  static const auto real = next<int (*)(const char*, mode_t)>("mkdir");
  return of_path("mkdir", path) == Effect::failed ? -1 : real(path, mode);
}

extern "C" void* mmap(void* at, std::size_t size, int protection, int flags, int descriptor,
                      off_t offset) noexcept {
  const bool file = (flags & MAP_ANONYMOUS) == 0;
  if (file && of_descriptor("map", descriptor) == Effect::failed) return MAP_FAILED;
  return reinterpret_cast<void*>(::syscall(SYS_mmap, at, size, protection, flags, descriptor, offset));
}

extern "C" void* mmap64(void* at, std::size_t size, int protection, int flags, int descriptor,
                        off_t offset) noexcept {
  return mmap(at, size, protection, flags, descriptor, offset);
}

extern "C" int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  if (of_open(path, flags) == Effect::failed) return -1;
  return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

extern "C" int open64(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return open(path, flags, mode);
}

// What file streams call.
extern "C" FILE* fopen(const char* path, const char* mode) {
  static const auto real = next<FILE* (*)(const char*, const char*)>("fopen");
  return of_open(path, mode[0] == 'r' ? O_RDONLY : O_WRONLY) == Effect::failed ? nullptr : real(path, mode);
}

extern "C" FILE* fopen64(const char* path, const char* mode) { return fopen(path, mode); }
