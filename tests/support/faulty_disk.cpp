// Preloaded: a disk that fails. Calls of PP_FAULT_CALL (read, write, fsync, rename or mkdir; read unless given)
// on paths that contain PP_FAULT_FILE go well PP_FAULT_AFTER times. The next one ends with an input/output
// error, or (PP_FAULT_HANGS) never, as on a network disk whose server has gone, or (PP_FAULT_KILLS) with the
// process, before anything of it is done.
#include <dlfcn.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

bool is_faulty(std::string_view call, std::string_view path) {
  static const char* const file = std::getenv("PP_FAULT_FILE");
  static const char* const wanted = std::getenv("PP_FAULT_CALL");
  return file && call == (wanted ? wanted : "read") && path.find(file) != std::string_view::npos;
}

bool fails(std::string_view call, std::string_view path) {
  if (!is_faulty(call, path)) return false;
  static const char* const after = std::getenv("PP_FAULT_AFTER");
  static std::atomic<int> left{after ? std::atoi(after) : 0};
  if (left.fetch_sub(1) > 0) return false;
  if (std::getenv("PP_FAULT_KILLS")) ::kill(::getpid(), SIGKILL);
  while (std::getenv("PP_FAULT_HANGS")) ::pause();
  errno = EIO;
  return true;
}

bool fails(std::string_view call, int descriptor) {
  const int error = errno;
  std::array<char, 4096> path{};
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  const ssize_t length = ::readlink(link.c_str(), path.data(), path.size());
  errno = error;
  return length > 0 && fails(call, std::string_view(path.data(), static_cast<std::size_t>(length)));
}

template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" ssize_t read(int descriptor, void* out, std::size_t size) {
  static const auto real = next<ssize_t (*)(int, void*, std::size_t)>("read");
  return fails("read", descriptor) ? -1 : real(descriptor, out, size);
}

extern "C" ssize_t pread(int descriptor, void* out, std::size_t size, off_t offset) {
  static const auto real = next<ssize_t (*)(int, void*, std::size_t, off_t)>("pread");
  return fails("read", descriptor) ? -1 : real(descriptor, out, size, offset);
}

extern "C" ssize_t pread64(int descriptor, void* out, std::size_t size, off_t offset) {
  return pread(descriptor, out, size, offset);
}

extern "C" ssize_t write(int descriptor, const void* bytes, std::size_t size) {
  static const auto real = next<ssize_t (*)(int, const void*, std::size_t)>("write");
  return fails("write", descriptor) ? -1 : real(descriptor, bytes, size);
}

extern "C" int fsync(int descriptor) {
  static const auto real = next<int (*)(int)>("fsync");
  return fails("fsync", descriptor) ? -1 : real(descriptor);
}

extern "C" int rename(const char* from, const char* to) {
  static const auto real = next<int (*)(const char*, const char*)>("rename");
  return fails("rename", to) ? -1 : real(from, to);
}

extern "C" int mkdir(const char* path, mode_t mode) {
  static const auto real = next<int (*)(const char*, mode_t)>("mkdir");
  return fails("mkdir", path) ? -1 : real(path, mode);
}
