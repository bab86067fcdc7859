#include "librun/data/safetensors_header.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "libprofile/core/error.h"
#include "libprofile/core/json_reader.h"

namespace pp::run {

namespace {

// What the format allows.
constexpr std::uint64_t kMostHeader = 100'000'000;

// Far above any tensor, far below an overflow of the bytes.
constexpr std::int64_t kMostElements = std::int64_t{1} << 50;

std::string bytes_at(const ByteSource& file, std::uint64_t offset, std::uint64_t count) {
  std::string bytes(static_cast<std::size_t>(count), '\0');
  file.read(offset, bytes);
  return bytes;
}

std::uint64_t read_length(std::string_view bytes) {
  std::uint64_t length = 0;
  for (std::size_t i = kSafetensorsPrefix; i-- > 0;)
    length = length << 8 | static_cast<unsigned char>(bytes[i]);
  return length;
}

StoredRange read_entry(const std::string& name, ObjectReader& reader, std::uint64_t data_bytes) {
  StoredRange range{.name = name, .dtype = reader.text("dtype"), .shape = reader.integers("shape")};
  const std::vector<std::int64_t> ends = reader.integers("data_offsets");
  if (ends.size() != 2 || ends[0] > ends[1] || static_cast<std::uint64_t>(ends[1]) > data_bytes) {
    reader.fail("data_offsets", "must be the begin and end of a range within the " +
                                    std::to_string(data_bytes) + " bytes of data");
  }
  range.begin = static_cast<std::uint64_t>(ends[0]);
  range.end = static_cast<std::uint64_t>(ends[1]);
  return range;
}

// Of what stands behind the prefix.
std::uint64_t header_bytes(const ByteSource& file) {
  if (file.size() < kSafetensorsPrefix)
    throw Error(ErrorKind::data, "not a safetensors file: shorter than 8 bytes");
  const std::uint64_t length = read_length(bytes_at(file, 0, kSafetensorsPrefix));
  if (length > kMostHeader)
    throw Error(ErrorKind::data, "not a safetensors file: a header of " + std::to_string(length) +
                                     " bytes, the format allows " + std::to_string(kMostHeader));
  if (length <= file.size() - kSafetensorsPrefix) return length;
  throw Error(ErrorKind::data, "not a safetensors file: a header of " + std::to_string(length) +
                                   " bytes in a file of " + std::to_string(file.size()));
}

std::vector<StoredRange> read_ranges(std::string_view header, std::uint64_t data_bytes, Metadata& metadata) {
  const Json json = parse_json(header);
  if (!json.is_object()) throw Error(ErrorKind::data, "not a safetensors file: the header is not an object");
  std::vector<StoredRange> ranges;
  for (const auto& [name, entry] : json.items()) {
    if (name == "__metadata__") {
      for (const auto& [key, text] : entry.items())
        if (text.is_string()) metadata[key] = text.get<std::string>();
      continue;
    }
    ObjectReader reader(entry, "/" + name);
    ranges.push_back(read_entry(name, reader, data_bytes));
    reader.finish();
  }
  std::sort(ranges.begin(), ranges.end(), [](const StoredRange& a, const StoredRange& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::uint64_t expected = 0;
  for (const StoredRange& range : ranges) {
    if (range.begin != expected) {
      throw Error(ErrorKind::data, "/" + range.name + "/data_offsets: leaves a gap or overlaps another tensor");
    }
    expected = range.end;
  }
  if (expected != data_bytes)
    throw Error(ErrorKind::data, std::to_string(data_bytes - expected) +
                                     " bytes behind the last tensor; the file is not what its header says, get "
                                     "it again");
  return ranges;
}

}  // namespace

SafetensorsHeader read_safetensors_header(const ByteSource& file) {
  const std::uint64_t length = header_bytes(file), data = kSafetensorsPrefix + length;
  SafetensorsHeader header{.data_offset = data};
  header.ranges = read_ranges(bytes_at(file, kSafetensorsPrefix, length), file.size() - data, header.metadata);
  return header;
}

void require_elements(const StoredRange& range, std::int64_t size, std::string_view type) {
  std::int64_t elements = 1;
  for (const std::int64_t dimension : range.shape) {
    if (dimension > 0 && elements > kMostElements / dimension)
      throw Error(ErrorKind::data, "/" + range.name + "/shape: more than 2^50 elements");
    elements *= dimension;
  }
  const std::uint64_t found = range.end - range.begin, needed = static_cast<std::uint64_t>(elements * size);
  if (found == needed) return;
  throw Error(ErrorKind::data, "/" + range.name + "/data_offsets: " + std::to_string(found) + " bytes, " +
                                   std::to_string(needed) + " needed for " + std::string(type) + " " +
                                   to_text(range.shape));
}

}  // namespace pp::run
