// Whole-file reading, atomic writing, and files that grow line by line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace pp {

/// Throws pp::Error (data): `PATH: cannot be read: reason`. Files above `limit` bytes are refused.
std::string read_file(const std::filesystem::path& path, std::size_t limit = std::size_t{256} << 20);
/// The same of a file of any size, piece by piece.
void read_file(const std::filesystem::path& path, const std::function<void(std::string_view)>& take);
/// The same of what stands on standard input.
std::string read_standard_input(std::size_t limit = std::size_t{256} << 20);

/// A file that appears whole or not at all. It is created at once in the target's folder, so a folder that
/// cannot be written is found before the long work, but has no name until commit(), which flushes, links and
/// renames: a process that is killed leaves nothing behind. File systems without nameless files get a name at
/// once, which the destructor removes. What is no plain file (a device, a pipe) is written in place.
class AtomicFile {
 public:
  /// Throws pp::Error (usage): `PATH: cannot be written: reason`.
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Appends. The disk begins to write while more is appended, so that commit() finds little left to flush.
  /// Throws pp::Error (run) when the disk is full.
  void write(std::string_view bytes);
  /// Puts `bytes` at `offset`, whatever has been written so far; by several threads at once.
  void write_at(std::uint64_t offset, std::string_view bytes);
  void commit();
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;  ///< empty: nameless, or in place
  bool in_place_ = false;
  int descriptor_ = -1;
  std::int64_t appended_ = 0;  ///< bytes
  std::int64_t handed_ = 0;    ///< of these: the disk has begun with them
};

void write_file(const std::filesystem::path& path, std::string_view bytes);

/// What was made, renamed or removed in a folder survives a power failure once this has returned, where the
/// file system can do it. Throws pp::Error (run) where the disk cannot.
void flush_folder(const std::filesystem::path& folder);

/// A file that grows by whole lines, which stay when the process is killed. What the path held goes with the
/// first line, unless lines are added to it; a half line at its end goes in any case. Without a line written
/// nothing has happened to the folder. Devices and pipes are written as they are.
class LineFile {
 public:
  enum class Begin { anew, at_the_end };
  /// Throws pp::Error (usage): `PATH: cannot be written: reason`.
  LineFile(std::filesystem::path path, Begin begin);
  ~LineFile();
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;

  /// `line` ends with a newline. Throws pp::Error (run) where the disk is full or the file has been deleted;
  /// then nothing of the line is left.
  void append(std::string_view line);

 private:
  void begin_writing();

  std::filesystem::path path_;
  Begin begin_;
  bool regular_ = false;
  bool created_ = false;  ///< by the constructor, and still empty
  bool written_ = false;
  int descriptor_ = -1;
};

}  // namespace pp
