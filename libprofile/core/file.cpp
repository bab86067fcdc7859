#include "libprofile/core/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "libprofile/core/error.h"

namespace pp {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(ErrorKind kind, const fs::path& path, const char* problem, int error) {
  throw Error(kind, path.string() + ": " + problem + ": " + std::generic_category().message(error));
}

/// Closes at the end of the scope.
class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int value() const { return value_; }

 private:
  int value_;
};

/// A link is followed, so that the file it points to is replaced and not the link.
fs::path real_target(fs::path path) {
  std::error_code ignored;
  if (fs::is_symlink(path, ignored)) {
    fs::path target = fs::weakly_canonical(path, ignored);
    if (!ignored) return target;
  }
  return path;
}

/// A new file beside `path`; the number makes it unique within the process, a leftover of a killed run is
/// passed over.
std::pair<int, fs::path> create_temporary(const fs::path& path) {
  for (int attempt = 0;; ++attempt) {
    fs::path candidate = path;
    candidate += std::string(".")
                     .append(std::to_string(::getpid()))
                     .append("-")
                     .append(std::to_string(attempt))
                     .append(".tmp");
    const int descriptor = ::open(candidate.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor >= 0) return {descriptor, std::move(candidate)};
    if (errno != EEXIST || attempt == 1000) fail(ErrorKind::usage, path, "cannot be written", errno);
  }
}

}  // namespace

std::string read_file(const fs::path& path, std::size_t limit) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.value() < 0) fail(ErrorKind::data, path, "cannot be read", errno);
  std::string text;
  std::array<char, 1 << 16> buffer;
  for (;;) {
    const ssize_t count = ::read(file.value(), buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(ErrorKind::data, path, "cannot be read", errno);
    if (count == 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(count));
    if (text.size() > limit) {
      throw Error(ErrorKind::data,
                  path.string() + ": is larger than the limit of " + std::to_string(limit) + " bytes");
    }
  }
}

AtomicFile::AtomicFile(fs::path path) : path_(real_target(std::move(path))) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path_, ignored);
  if (fs::is_directory(status)) fail(ErrorKind::usage, path_, "cannot be written", EISDIR);
  if (fs::exists(status) && !fs::is_regular_file(status)) {  // /dev/null, a pipe: nothing to replace
    descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC);
    if (descriptor_ < 0) fail(ErrorKind::usage, path_, "cannot be written", errno);
    return;
  }
  std::tie(descriptor_, temporary_) = create_temporary(path_);
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::string_view bytes) {
  if (descriptor_ < 0) throw Error(ErrorKind::internal, path_.string() + ": written after commit()");
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(ErrorKind::run, path_, "cannot be written", errno);
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
}

void AtomicFile::commit() {
  if (descriptor_ < 0) throw Error(ErrorKind::internal, path_.string() + ": committed twice");
  const bool flushed = temporary_.empty() || ::fsync(descriptor_) == 0;
  const int flush_error = errno;
  const bool closed = ::close(std::exchange(descriptor_, -1)) == 0;
  if (!flushed || !closed) fail(ErrorKind::run, path_, "cannot be written", flushed ? errno : flush_error);
  if (temporary_.empty()) return;
  if (::rename(temporary_.c_str(), path_.c_str()) != 0)
    fail(ErrorKind::run, path_, "cannot be replaced", errno);
  temporary_.clear();
  // The rename itself survives a power failure only once the folder is on disk; not every file system can do
  // this.
  const fs::path folder = path_.has_parent_path() ? path_.parent_path() : fs::path(".");
  const Descriptor parent(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (parent.value() >= 0) ::fsync(parent.value());
}

void write_file(const fs::path& path, std::string_view bytes) {
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

}  // namespace pp
