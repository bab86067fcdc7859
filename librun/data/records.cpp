#include "librun/data/records.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <system_error>
#include <utility>

#include "libprofile/core/error.h"

namespace pp::run {

namespace {

struct SamplePlace {
  const Records::Part& part;
  std::uint64_t offset;
};

SamplePlace locate(const Records& records, std::int64_t sample) {
  auto part = records.parts.begin();
  while (sample >= part->count) sample -= part++->count;
  return {*part, part->offset + static_cast<std::uint64_t>(sample) * part->stride};
}

// How many samples from the first on stand without a gap in one part.
std::size_t run_length(const Records& records, std::span<const std::int64_t> samples,
                       const SamplePlace& first) {
  if (first.part.stride != records.sample_bytes()) return 1;
  const std::uint64_t end =
      first.part.offset + static_cast<std::uint64_t>(first.part.count) * first.part.stride;
  const auto left = static_cast<std::size_t>((end - first.offset) / first.part.stride);
  std::size_t length = 1;
  while (length < std::min(samples.size(), left) && samples[length] == samples[length - 1] + 1) ++length;
  return length;
}

void swap_bytes(std::span<char> bytes, std::size_t size) {
  if (size == 1) return;
  for (auto at = bytes.begin(); at != bytes.end(); at += static_cast<std::ptrdiff_t>(size))
    std::reverse(at, at + static_cast<std::ptrdiff_t>(size));
}

struct Allowed {
  std::int64_t limit;
  std::optional<std::int64_t> ignored;
};

template <class T>
std::optional<std::size_t> first_outside(std::span<const char> bytes, const Allowed& allowed,
                                         std::int64_t& value) {
  for (std::size_t i = 0; i < bytes.size() / sizeof(T); ++i) {
    T element;
    std::memcpy(&element, bytes.data() + i * sizeof(T), sizeof(T));
    value = static_cast<std::int64_t>(element);
    if ((value < 0 || value >= allowed.limit) && value != allowed.ignored) return i;
  }
  return std::nullopt;
}

std::optional<std::size_t> first_outside(ElementType type, std::span<const char> bytes, const Allowed& allowed,
                                         std::int64_t& value) {
  switch (type) {
    case ElementType::int8: return first_outside<std::int8_t>(bytes, allowed, value);
    case ElementType::uint16: return first_outside<std::uint16_t>(bytes, allowed, value);
    case ElementType::int16: return first_outside<std::int16_t>(bytes, allowed, value);
    case ElementType::uint32: return first_outside<std::uint32_t>(bytes, allowed, value);
    case ElementType::int32: return first_outside<std::int32_t>(bytes, allowed, value);
    case ElementType::int64: return first_outside<std::int64_t>(bytes, allowed, value);
    default: return first_outside<std::uint8_t>(bytes, allowed, value);
  }
}

[[noreturn]] void fail(const std::string& place, int error) {
  throw Error(ErrorKind::data, place + ": cannot be read: " + std::generic_category().message(error));
}

std::string place_in(const std::filesystem::path& path, std::uint64_t offset) {
  return path.string() + ": byte " + std::to_string(offset);
}

}  // namespace

std::int64_t Records::samples() const {
  return std::accumulate(parts.begin(), parts.end(), std::int64_t{0},
                         [](std::int64_t sum, const Part& part) { return sum + part.count; });
}

std::size_t Records::sample_bytes() const {
  return static_cast<std::size_t>(element_count(shape) * size_of(type));
}

std::uint64_t dense_bytes(const std::string& source, const Shape& shape, ElementType type) {
  // Far above any data set, far below an overflow of the product.
  constexpr std::int64_t kMostElements = std::int64_t{1} << 40;
  std::int64_t elements = 1;
  for (const std::int64_t dimension : shape) {
    if (dimension < 1)
      throw Error(ErrorKind::data, source + ": the shape " + to_text(shape) + " has no elements");
    if (dimension > kMostElements / elements)
      throw Error(ErrorKind::data, source + ": the shape " + to_text(shape) + " has more than 2^40 elements");
    elements *= dimension;
  }
  return static_cast<std::uint64_t>(elements * size_of(type));
}

Records dense_records(std::string source, std::shared_ptr<const ByteSource> bytes, std::uint64_t offset,
                      const Shape& shape, ElementType type) {
  if (shape.empty())
    throw Error(ErrorKind::data, source + ": a single number; the first dimension counts samples");
  const std::uint64_t size = dense_bytes(source, shape, type);
  Records records{.source = std::move(source), .type = type, .shape = Shape(shape.begin() + 1, shape.end())};
  const auto count = static_cast<std::uint64_t>(shape.front());
  records.parts.push_back({std::move(bytes), offset, size / count, shape.front()});
  return records;
}

void read_records(const Records& records, std::span<const std::int64_t> samples, std::span<char> out) {
  const std::size_t size = records.sample_bytes();
  std::span<char> rest = out;
  while (!samples.empty()) {
    const SamplePlace first = locate(records, samples.front());
    const std::size_t count = run_length(records, samples, first);
    first.part.bytes->read(first.offset, rest.first(count * size));
    rest = rest.subspan(count * size);
    samples = samples.subspan(count);
  }
  if (records.big_endian != (std::endian::native == std::endian::big))
    swap_bytes(out, static_cast<std::size_t>(size_of(records.type)));
}

std::string place_of(const Records& records, std::int64_t sample, std::int64_t element) {
  const SamplePlace position = locate(records, sample);
  return position.part.bytes->place(position.offset +
                                    static_cast<std::uint64_t>(element * size_of(records.type)));
}

std::optional<OutOfRange> find_out_of_range(const Records& records, std::int64_t limit,
                                            std::optional<std::int64_t> ignored) {
  constexpr std::size_t kChunk = std::size_t{1} << 20;
  if (!is_signed(records.type) && maximum(records.type) < limit) return std::nullopt;
  const std::size_t size = records.sample_bytes();
  const std::int64_t all = records.samples(),
                     step = static_cast<std::int64_t>(std::max<std::size_t>(1, kChunk / size));
  std::vector<std::int64_t> samples;
  std::vector<char> bytes;
  for (std::int64_t first = 0; first < all; first += step) {
    samples.resize(static_cast<std::size_t>(std::min(step, all - first)));
    std::iota(samples.begin(), samples.end(), first);
    bytes.resize(samples.size() * size);
    read_records(records, samples, bytes);
    std::int64_t value = 0;
    const auto found = first_outside(records.type, bytes, {limit, ignored}, value);
    if (!found) continue;
    const auto per_sample = static_cast<std::int64_t>(size) / size_of(records.type);
    const auto index = static_cast<std::int64_t>(*found);
    return OutOfRange{first + index / per_sample, index % per_sample, value};
  }
  return std::nullopt;
}

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
