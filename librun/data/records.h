// Samples as records of one size: what all files of data come down to, with the number types that they hold
// and the bytes at offsets of a file or of a table in memory. A reader says from headers alone where the
// records of each input and target stand; everything else is done here, for all of them. Free of Torch.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "libprofile/core/enum_names.h"
#include "libprofile/core/model/model_graph.h"

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

namespace pp::run {

enum class ElementType {
  boolean,
  uint8,
  int8,
  uint16,
  int16,
  uint32,
  int32,
  int64,
  float16,
  bfloat16,
  float32,
  float64
};

constexpr std::int64_t size_of(ElementType type) {
  switch (type) {
    case ElementType::boolean:
    case ElementType::uint8:
    case ElementType::int8: return 1;
    case ElementType::uint16:
    case ElementType::int16:
    case ElementType::float16:
    case ElementType::bfloat16: return 2;
    case ElementType::uint32:
    case ElementType::int32:
    case ElementType::float32: return 4;
    case ElementType::int64:
    case ElementType::float64: return 8;
  }
  return 0;
}

/// The enumerators before float16.
constexpr bool is_integer(ElementType type) { return type < ElementType::float16; }

/// Largest value of an integer type.
constexpr std::int64_t maximum(ElementType type) {
  switch (type) {
    case ElementType::boolean: return 1;
    case ElementType::uint8: return std::numeric_limits<std::uint8_t>::max();
    case ElementType::int8: return std::numeric_limits<std::int8_t>::max();
    case ElementType::uint16: return std::numeric_limits<std::uint16_t>::max();
    case ElementType::int16: return std::numeric_limits<std::int16_t>::max();
    case ElementType::uint32: return std::numeric_limits<std::uint32_t>::max();
    case ElementType::int32: return std::numeric_limits<std::int32_t>::max();
    default: return std::numeric_limits<std::int64_t>::max();
  }
}

constexpr bool is_signed(ElementType type) {
  return type == ElementType::int8 || type == ElementType::int16 || type == ElementType::int32 ||
         type == ElementType::int64;
}

}  // namespace pp::run

namespace pp {
template <>
struct EnumNames<run::ElementType> {
  using enum run::ElementType;
  static constexpr std::array table{
      std::pair{boolean, "bool"sv},      std::pair{uint8, "uint8"sv},     std::pair{int8, "int8"sv},
      std::pair{uint16, "uint16"sv},     std::pair{int16, "int16"sv},     std::pair{uint32, "uint32"sv},
      std::pair{int32, "int32"sv},       std::pair{int64, "int64"sv},     std::pair{float16, "float16"sv},
      std::pair{bfloat16, "bfloat16"sv}, std::pair{float32, "float32"sv}, std::pair{float64, "float64"sv}};
};
}  // namespace pp

namespace pp::run {

/// One input or target of all samples, as stored.
struct Records {
  /// Sample i of `count` begins at offset + i * stride.
  struct Part {
    std::shared_ptr<const ByteSource> bytes;
    std::uint64_t offset = 0;
    std::uint64_t stride = 0;
    std::int64_t count = 0;
  };
  std::string source{};       ///< for messages: the file, and what of it
  std::vector<Part> parts{};  ///< one after the other
  ElementType type = ElementType::uint8;
  bool big_endian = false;
  Shape shape{};  ///< per sample

  std::int64_t samples() const;
  std::size_t sample_bytes() const;
};

/// A training or test set. The columns may hold samples before `first` that belong to the other one.
struct SampleTable {
  std::string source{};
  std::vector<Records> inputs{};   ///< in the order of the model's inputs; without parts: left out
  std::vector<Records> targets{};  ///< in the order of the model's targets, likewise
  std::int64_t first = 0;
  std::int64_t samples = 0;
};

/// Bytes of dense elements. Throws pp::Error (data) that begins with `source` unless there are 1 to 2^40 of
/// them.
std::uint64_t dense_bytes(const std::string& source, const Shape& shape, ElementType type);
/// The first dimension of `shape` counts the samples, which begin at `offset` of the file. Throws as above.
Records dense_records(std::string source, std::shared_ptr<const ByteSource> bytes, std::uint64_t offset,
                      const Shape& shape, ElementType type);

/// The records of these samples one after the other, in the machine's byte order; `out` has as many bytes.
/// Neighbours in the file are read at once.
void read_records(const Records& records, std::span<const std::int64_t> samples, std::span<char> out);

/// Where a sample stands, and the element within it: `train-labels.idx: byte 8`.
std::string place_of(const Records& records, std::int64_t sample, std::int64_t element);

struct OutOfRange {
  std::int64_t sample = 0, element = 0, value = 0;
};
/// The first value of integer records that is neither in 0..limit-1 nor `ignored`. Reads all of them, unless
/// the type has no others.
std::optional<OutOfRange> find_out_of_range(const Records& records, std::int64_t limit,
                                            std::optional<std::int64_t> ignored = {});

}  // namespace pp::run
