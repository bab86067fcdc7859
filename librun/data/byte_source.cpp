#include "librun/data/byte_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "libprofile/core/error.h"

namespace pp::run {

namespace {

[[noreturn]] void fail(const std::string& place, int error) {
  throw Error(ErrorKind::data, place + ": cannot be read: " + std::generic_category().message(error));
}

std::string place_in(const std::filesystem::path& path, std::uint64_t offset) {
  return path.string() + ": byte " + std::to_string(offset);
}

}  // namespace

FileBytes::FileBytes(std::filesystem::path path) : path_(std::move(path)) {
  // A pipe that nobody writes would be waited for.
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0 && errno == ENOENT) throw Error(ErrorKind::data, path_.string() + ": no such file");
  if (descriptor_ < 0) fail(path_.string(), errno);
  struct stat status {};
  const bool plain = ::fstat(descriptor_, &status) == 0 && S_ISREG(status.st_mode);
  if (!plain) {
    ::close(descriptor_);
    throw Error(ErrorKind::data, path_.string() + ": not a plain file");
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
}

FileBytes::~FileBytes() { ::close(descriptor_); }

void FileBytes::read(std::uint64_t offset, std::span<char> out) const {
  while (!out.empty()) {
    const ssize_t count = ::pread(descriptor_, out.data(), out.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(place(offset), errno);
    if (count == 0) {
      throw Error(ErrorKind::data, path_.string() + ": ends at byte " + std::to_string(offset) + ", it had " +
                                       std::to_string(size_) + " bytes; data must not change during a run");
    }
    offset += static_cast<std::uint64_t>(count);
    out = out.subspan(static_cast<std::size_t>(count));
  }
}

std::string FileBytes::place(std::uint64_t offset) const { return place_in(path_, offset); }

void ReadBytes::read(std::uint64_t offset, std::span<char> out) const {
  if (offset > file_.size || out.size() > file_.size - offset)
    throw Error(ErrorKind::data, place(offset) + ": the file has " + std::to_string(file_.size) + " bytes");
  std::memcpy(out.data(), file_.bytes.get() + offset, out.size());
}

std::string ReadBytes::place(std::uint64_t offset) const { return place_in(path_, offset); }

}  // namespace pp::run
