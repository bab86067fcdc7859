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
  Descriptor(Descriptor&& other) noexcept : value_(std::exchange(other.value_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
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

fs::path folder_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

/// How a file without a name is reached.
std::string descriptor_path(int descriptor) { return "/proc/self/fd/" + std::to_string(descriptor); }

/// A file in the folder of `path` that has no name yet, so that nothing stays behind however the process ends;
/// -1 where the file system has none such.
int create_unnamed(const fs::path& path) {
  const int descriptor = ::open(folder_of(path).c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666);
  if (descriptor >= 0 && ::access(descriptor_path(descriptor).c_str(), F_OK) != 0) {
    ::close(descriptor);
    return -1;
  }
  return descriptor;
}

/// Calls make(name) with names beside `path` until it succeeds: the number makes them unique within the
/// process, a leftover of a killed run is passed over. `make` returns a negative number and errno.
template <class Make>
std::pair<int, fs::path> with_new_name(const fs::path& path, ErrorKind kind, Make make) {
  for (int attempt = 0;; ++attempt) {
    fs::path candidate = path;
    candidate += "." + std::to_string(::getpid()) + "-" + std::to_string(attempt) + ".tmp";
    const int made = make(candidate);
    if (made >= 0) return {made, std::move(candidate)};
    if (errno != EEXIST || attempt == 1000) fail(kind, path, "cannot be written", errno);
  }
}

/// A pipe that nobody reads is refused: opening it would wait for a reader.
int open_in_place(const fs::path& path) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0 && errno == ENXIO) {
    throw Error(ErrorKind::usage,
                path.string() + ": cannot be written: no process reads this pipe; start its reader first");
  }
  if (descriptor < 0) fail(ErrorKind::usage, path, "cannot be written", errno);
  ::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) & ~O_NONBLOCK);
  return descriptor;
}

/// Everything that can be read from `descriptor`, called `name` in messages.
template <class Take>
void read_pieces(int descriptor, const fs::path& name, Take&& take) {
  std::array<char, 1 << 16> buffer;
  for (;;) {
    const ssize_t count = ::read(descriptor, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(ErrorKind::data, name, "cannot be read", errno);
    if (count == 0) return;
    take(std::string_view(buffer.data(), static_cast<std::size_t>(count)));
  }
}

std::string read_all(int descriptor, const fs::path& name, std::size_t limit) {
  std::string text;
  read_pieces(descriptor, name, [&](std::string_view piece) {
    text += piece;
    if (text.size() <= limit) return;
    throw Error(ErrorKind::data,
                name.string() + ": is larger than the limit of " + std::to_string(limit) + " bytes");
  });
  return text;
}

Descriptor open_to_read(const fs::path& path) {
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.value() < 0) fail(ErrorKind::data, path, "cannot be read", errno);
  return file;
}

}  // namespace

std::string read_file(const fs::path& path, std::size_t limit) {
  return read_all(open_to_read(path).value(), path, limit);
}

void read_file(const fs::path& path, const std::function<void(std::string_view)>& take) {
  read_pieces(open_to_read(path).value(), path, take);
}

std::string read_standard_input(std::size_t limit) { return read_all(STDIN_FILENO, "standard input", limit); }

AtomicFile::AtomicFile(fs::path path) : path_(real_target(std::move(path))) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path_, ignored);
  if (fs::is_directory(status)) fail(ErrorKind::usage, path_, "cannot be written", EISDIR);
  if (fs::exists(status) && !fs::is_regular_file(status)) {  // /dev/null, a pipe: nothing to replace
    descriptor_ = open_in_place(path_);
    in_place_ = true;
    return;
  }
  descriptor_ = create_unnamed(path_);
  if (descriptor_ < 0) {
    std::tie(descriptor_, temporary_) = with_new_name(path_, ErrorKind::usage, [](const fs::path& name) {
      return ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    });
  }
  // Who may read what is replaced may read what comes in its place, and nobody else.
  if (fs::exists(status)) ::fchmod(descriptor_, static_cast<mode_t>(status.permissions()) & 0777);
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

namespace {

/// write_some(bytes) writes a part of them and returns how many.
template <class WriteSome>
void write_all(const fs::path& path, std::string_view bytes, WriteSome write_some) {
  while (!bytes.empty()) {
    const ssize_t count = write_some(bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(ErrorKind::run, path, "cannot be written", errno);
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
}

}  // namespace

void AtomicFile::write(std::string_view bytes) {
  if (descriptor_ < 0) throw Error(ErrorKind::internal, path_.string() + ": written after commit()");
  write_all(path_, bytes,
            [&](std::string_view rest) { return ::write(descriptor_, rest.data(), rest.size()); });
  constexpr std::int64_t kAtOnce = std::int64_t{32} << 20;
  appended_ += std::ssize(bytes);
  if (appended_ - handed_ < kAtOnce) return;
  ::sync_file_range(descriptor_, handed_, appended_ - handed_, SYNC_FILE_RANGE_WRITE);
  handed_ = appended_;
}

void AtomicFile::write_at(std::uint64_t offset, std::string_view bytes) {
  if (descriptor_ < 0) throw Error(ErrorKind::internal, path_.string() + ": written after commit()");
  const std::uint64_t end = offset + bytes.size();
  write_all(path_, bytes, [&](std::string_view rest) {
    return ::pwrite(descriptor_, rest.data(), rest.size(), static_cast<off_t>(end - rest.size()));
  });
}

namespace {

/// errno, 0 where what happened in the folder is on the disk, or the file system has no way to ask for that, or
/// the folder may be written but not read.
int flush_error_of(const fs::path& folder) {
  const Descriptor descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (descriptor.value() < 0) return errno == EACCES ? 0 : errno;
  if (::fsync(descriptor.value()) == 0 || errno == EINVAL || errno == ENOTSUP) return 0;
  return errno;
}

}  // namespace

void AtomicFile::commit() {
  if (descriptor_ < 0) throw Error(ErrorKind::internal, path_.string() + ": committed twice");
  const bool flushed = in_place_ || ::fsync(descriptor_) == 0;
  const int flush_error = errno;
  if (flushed && !in_place_ && temporary_.empty()) {
    const auto link = [&](const fs::path& name) {
      return ::linkat(AT_FDCWD, descriptor_path(descriptor_).c_str(), AT_FDCWD, name.c_str(),
                      AT_SYMLINK_FOLLOW);
    };
    temporary_ = with_new_name(path_, ErrorKind::run, link).second;
  }
  const bool closed = ::close(std::exchange(descriptor_, -1)) == 0;
  if (!flushed || !closed) fail(ErrorKind::run, path_, "cannot be written", flushed ? errno : flush_error);
  if (in_place_) return;
  if (::rename(temporary_.c_str(), path_.c_str()) != 0)
    fail(ErrorKind::run, path_, "cannot be replaced", errno);
  temporary_.clear();
  if (const int error = flush_error_of(folder_of(path_)); error != 0)
    fail(ErrorKind::run, path_, "may not survive a power failure, its folder cannot be flushed", error);
}

void flush_folder(const fs::path& folder) {
  if (const int error = flush_error_of(folder); error != 0)
    fail(ErrorKind::run, folder, "cannot be flushed", error);
}

void write_file(const fs::path& path, std::string_view bytes) {
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

LineFile::LineFile(fs::path path, Begin begin) : path_(std::move(path)), begin_(begin) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path_, ignored);
  regular_ = !fs::exists(status) || fs::is_regular_file(status);
  created_ = !fs::exists(status);
  if (fs::is_directory(status)) fail(ErrorKind::usage, path_, "cannot be written", EISDIR);
  descriptor_ = regular_ ? ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666) : open_in_place(path_);
  if (descriptor_ < 0) fail(ErrorKind::usage, path_, "cannot be written", errno);
}

LineFile::~LineFile() {
  ::close(descriptor_);
  if (created_ && !written_) ::unlink(path_.c_str());
}

void LineFile::begin_writing() {
  written_ = true;
  if (!regular_) return;
  off_t end = begin_ == Begin::anew ? 0 : ::lseek(descriptor_, 0, SEEK_END);
  for (char last = 0; end > 0; --end) {
    ssize_t count = 0;
    while ((count = ::pread(descriptor_, &last, 1, end - 1)) < 0 && errno == EINTR) {
    }
    if (count < 0) fail(ErrorKind::run, path_, "cannot be read", errno);
    if (count == 0 || last == '\n') break;
  }
  if (::ftruncate(descriptor_, end) != 0 || ::lseek(descriptor_, end, SEEK_SET) != end)
    fail(ErrorKind::run, path_, "cannot be written", errno);
}

void LineFile::append(std::string_view line) {
  if (!written_) begin_writing();
  struct stat status {};
  if (regular_ && ::fstat(descriptor_, &status) == 0 && status.st_nlink == 0)
    throw Error(ErrorKind::run, path_.string() + ": cannot be written: it has been deleted or replaced");
  const off_t before = regular_ ? ::lseek(descriptor_, 0, SEEK_CUR) : 0;
  while (!line.empty()) {
    const ssize_t count = ::write(descriptor_, line.data(), line.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      const int error = errno;
      if (regular_ && ::ftruncate(descriptor_, before) == 0) ::lseek(descriptor_, before, SEEK_SET);
      fail(ErrorKind::run, path_, "cannot be written", error);
    }
    line.remove_prefix(static_cast<std::size_t>(count));
  }
}

}  // namespace pp
