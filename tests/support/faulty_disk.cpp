// Preloaded: a disk that fails. Reads of files whose path ends with PP_FAULT_FILE go well PP_FAULT_AFTER times,
// then end with an input/output error, or (PP_FAULT_HANGS) never, as on a network disk whose server has gone.
#include <dlfcn.h>
#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

bool is_faulty(int descriptor) {
  static const char* const file = std::getenv("PP_FAULT_FILE");
  if (!file) return false;
  std::array<char, 4096> path{};
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  const ssize_t length = ::readlink(link.c_str(), path.data(), path.size());
  if (length < 0) return false;
  return std::string_view(path.data(), static_cast<std::size_t>(length)).ends_with(file);
}

bool fails(int descriptor) {
  const int error = errno;
  const bool faulty = is_faulty(descriptor);
  errno = error;
  if (!faulty) return false;
  static const char* const after = std::getenv("PP_FAULT_AFTER");
  static std::atomic<int> left{after ? std::atoi(after) : 0};
  if (left.fetch_sub(1) > 0) return false;
  while (std::getenv("PP_FAULT_HANGS")) ::pause();
  errno = EIO;
  return true;
}

template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" ssize_t read(int descriptor, void* out, std::size_t size) {
  static const auto real = next<ssize_t (*)(int, void*, std::size_t)>("read");
  return fails(descriptor) ? -1 : real(descriptor, out, size);
}

extern "C" ssize_t pread(int descriptor, void* out, std::size_t size, off_t offset) {
  static const auto real = next<ssize_t (*)(int, void*, std::size_t, off_t)>("pread");
  return fails(descriptor) ? -1 : real(descriptor, out, size, offset);
}

extern "C" ssize_t pread64(int descriptor, void* out, std::size_t size, off_t offset) {
  return pread(descriptor, out, size, offset);
}
