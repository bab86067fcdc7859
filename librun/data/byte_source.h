// Bytes at offsets: of a file that stays on disk, or of a table in memory. Free of Torch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>

namespace pp::run {

/// Read-only; any number of threads may read at once.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual std::uint64_t size() const = 0;
  virtual bool in_memory() const = 0;
  /// Fills `out` with the bytes from `offset` on. Throws pp::Error (data) when they are not there.
  virtual void read(std::uint64_t offset, std::span<char> out) const = 0;
  /// For messages: `train-labels.idx: byte 8`.
  virtual std::string place(std::uint64_t offset) const = 0;
};

/// A file, read where it is asked (pread) and kept by the system's page cache: it may be larger than memory,
/// and one that becomes shorter gives an error with its name, where a mapped one would end the process.
class FileBytes final : public ByteSource {
 public:
  /// Throws pp::Error (data): `PATH: no such file`, `PATH: cannot be read: REASON`.
  explicit FileBytes(std::filesystem::path path);
  ~FileBytes() override;
  FileBytes(const FileBytes&) = delete;
  FileBytes& operator=(const FileBytes&) = delete;

  /// When it was opened.
  std::uint64_t size() const override { return size_; }
  bool in_memory() const override { return false; }
  void read(std::uint64_t offset, std::span<char> out) const override;
  std::string place(std::uint64_t offset) const override;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

/// A file that has been read.
struct ReadFile {
  std::shared_ptr<const char[]> bytes;
  std::uint64_t size = 0;
};
using ReadFiles = std::map<std::filesystem::path, ReadFile>;

class ReadBytes final : public ByteSource {
 public:
  ReadBytes(std::filesystem::path path, ReadFile file) : path_(std::move(path)), file_(std::move(file)) {}

  std::uint64_t size() const override { return file_.size; }
  bool in_memory() const override { return true; }
  void read(std::uint64_t offset, std::span<char> out) const override;
  std::string place(std::uint64_t offset) const override;

 private:
  std::filesystem::path path_;
  ReadFile file_;
};

}  // namespace pp::run
