#include "librun/checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "libprofile/core/error.h"
#include "libprofile/core/file.h"
#include "libprofile/core/json_reader.h"

namespace pp::run {

namespace {

constexpr std::array kDTypes{std::pair{DType::float32, "F32"sv}, std::pair{DType::float64, "F64"sv},
                             std::pair{DType::bfloat16, "BF16"sv}, std::pair{DType::int64, "I64"sv},
                             std::pair{DType::uint8, "U8"sv}};
constexpr std::size_t kLengthBytes = 8;

std::string_view tag_of(DType dtype) {
  return std::find_if(kDTypes.begin(), kDTypes.end(), [&](const auto& row) { return row.first == dtype; })
      ->second;
}

DType dtype_of(ObjectReader& reader) {
  const std::string tag = reader.text("dtype");
  for (const auto& [dtype, name] : kDTypes) {
    if (name == tag) return dtype;
  }
  reader.fail("dtype", "\"" + tag + "\" is none of F32, F64, BF16, I64, U8");
}

std::string length_bytes(std::uint64_t length) {
  std::string bytes;
  for (int shift = 0; shift < 64; shift += 8) bytes.push_back(static_cast<char>(length >> shift & 0xff));
  return bytes;
}

std::uint64_t read_length(std::string_view bytes) {
  std::uint64_t length = 0;
  for (std::size_t i = kLengthBytes; i-- > 0;) length = length << 8 | static_cast<unsigned char>(bytes[i]);
  return length;
}

// The bytes of the tensor, cut from the data behind the header.
StoredTensor read_entry(const std::string& name, ObjectReader& reader, std::string_view data) {
  StoredTensor tensor{name, {reader.integers("shape"), dtype_of(reader)}, {}};
  const std::vector<std::int64_t> range = reader.integers("data_offsets");
  const auto size = static_cast<std::int64_t>(data.size());
  if (range.size() != 2 || range[0] > range[1] || range[1] > size) {
    reader.fail("data_offsets",
                "must be the begin and end of a range within the " + std::to_string(size) + " bytes of data");
  }
  if (Bytes(range[1] - range[0]) != pp::bytes_of(tensor.type)) {
    reader.fail("data_offsets", std::to_string(range[1] - range[0]) + " bytes, " +
                                    std::to_string(pp::bytes_of(tensor.type).value) + " needed for " +
                                    std::string(name_of(tensor.type.dtype)) + " " + to_text(tensor.type.shape));
  }
  tensor.bytes = data.substr(static_cast<std::size_t>(range[0]), static_cast<std::size_t>(range[1] - range[0]));
  return tensor;
}

std::vector<StoredTensor> read_entries(std::string_view content) {
  if (content.size() < kLengthBytes)
    throw Error(ErrorKind::data, "not a safetensors file: shorter than 8 bytes");
  const std::uint64_t length = read_length(content);
  if (length > content.size() - kLengthBytes) {
    throw Error(ErrorKind::data, "not a safetensors file: a header of " + std::to_string(length) +
                                     " bytes in a file of " + std::to_string(content.size()));
  }
  const auto header_size = static_cast<std::size_t>(length);
  const Json header = parse_json(content.substr(kLengthBytes, header_size));
  if (!header.is_object()) throw Error(ErrorKind::data, "not a safetensors file: the header is not an object");
  const std::string_view data = content.substr(kLengthBytes + header_size);
  std::vector<StoredTensor> tensors;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    ObjectReader reader(entry, "/" + name);
    tensors.push_back(read_entry(name, reader, data));
    reader.finish();
  }
  std::sort(tensors.begin(), tensors.end(),
            [](const StoredTensor& a, const StoredTensor& b) { return a.bytes.data() < b.bytes.data(); });
  const char* expected = data.data();
  for (const StoredTensor& tensor : tensors) {
    if (tensor.bytes.data() != expected)
      throw Error(ErrorKind::data,
                  "/" + tensor.name + "/data_offsets: leaves a gap or overlaps another tensor");
    expected += tensor.bytes.size();
  }
  return tensors;
}

}  // namespace

void write_safetensors(std::span<const StoredTensor> tensors,
                       const std::function<void(std::string_view)>& write) {
  Json header = Json::object();
  std::int64_t offset = 0;
  for (const StoredTensor& tensor : tensors) {
    const auto size = static_cast<std::int64_t>(tensor.bytes.size());
    if (Bytes(size) != pp::bytes_of(tensor.type)) {
      throw Error(ErrorKind::internal,
                  tensor.name + ": " + std::to_string(size) + " bytes for " + to_text(tensor.type.shape));
    }
    header[tensor.name] = {{"dtype", tag_of(tensor.type.dtype)},
                           {"shape", tensor.type.shape},
                           {"data_offsets", {offset, offset + size}}};
    offset += size;
  }
  std::string text = header.dump();
  text.resize((text.size() + kLengthBytes - 1) / kLengthBytes * kLengthBytes, ' ');
  write(length_bytes(text.size()));
  write(text);
  for (const StoredTensor& tensor : tensors) write(tensor.bytes);
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : content_(read_file(path, std::numeric_limits<std::size_t>::max())),
      tensors_(with_context(path.string(), [&] { return read_entries(content_); })) {}

const StoredTensor* SafetensorsFile::find(std::string_view name) const {
  const auto found =
      std::find_if(tensors_.begin(), tensors_.end(), [&](const StoredTensor& t) { return t.name == name; });
  return found == tensors_.end() ? nullptr : &*found;
}

}  // namespace pp::run
