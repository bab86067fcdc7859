#include "librun/data/idx.h"

#include <algorithm>
#include <array>
#include <bit>
#include <memory>
#include <utility>

#include "libprofile/core/error.h"
#include "librun/data/readers.h"

namespace pp::run {

namespace {

constexpr int kMaxDimensions = 8;
constexpr std::array kIdxTypes{
    std::pair{ElementType::uint8, '\x08'},   std::pair{ElementType::int8, '\x09'},
    std::pair{ElementType::int16, '\x0B'},   std::pair{ElementType::int32, '\x0C'},
    std::pair{ElementType::float32, '\x0D'}, std::pair{ElementType::float64, '\x0E'}};

[[noreturn]] void refuse_idx(const std::string& source, const std::string& message) {
  throw Error(ErrorKind::data, source + ": " + message);
}

std::uint32_t big_endian(std::string_view bytes) {
  std::uint32_t value = 0;
  for (const char byte : bytes) value = value << 8 | static_cast<unsigned char>(byte);
  return value;
}

std::string read_header(const FileBytes& file, std::uint64_t offset, std::size_t count) {
  if (file.size() < offset + count)
    refuse_idx(file.path().string(), "not an IDX file: it ends inside the header");
  std::string bytes(count, '\0');
  file.read(offset, bytes);
  return bytes;
}

ElementType element_type(const std::string& source, char code) {
  for (const auto& [type, known] : kIdxTypes) {
    if (known == code) return type;
  }
  refuse_idx(source, "not an IDX file: element type " + std::to_string(static_cast<unsigned char>(code)) +
                         " is none of 8, 9, 11, 12, 13, 14");
}

}  // namespace

Records read_idx(const std::filesystem::path& path) {
  const auto file = std::make_shared<const FileBytes>(path);
  const std::string source = path.string();
  const std::string magic = read_header(*file, 0, 4);
  if (magic[0] != 0 || magic[1] != 0) refuse_idx(source, "not an IDX file: the first two bytes are not zero");
  const ElementType type = element_type(source, magic[2]);
  const int dimensions = static_cast<unsigned char>(magic[3]);
  if (dimensions < 1 || dimensions > kMaxDimensions) {
    refuse_idx(source, "not an IDX file: " + std::to_string(dimensions) + " dimensions, 1 to 8 are allowed");
  }
  const std::string sizes = read_header(*file, 4, 4 * static_cast<std::size_t>(dimensions));
  Shape shape;
  for (std::size_t i = 0; i < sizes.size(); i += 4) shape.push_back(big_endian(sizes.substr(i, 4)));
  const std::uint64_t offset = 4 + sizes.size(), expected = dense_bytes(source, shape, type);
  if (const std::uint64_t found = file->size() - offset; found != expected) {
    refuse_idx(source, std::to_string(found) + " bytes of elements, " + std::to_string(expected) +
                           " expected for " + std::string(name_of(type)) + " " + to_text(shape));
  }
  Records records = dense_records(source, file, offset, shape, type);
  records.big_endian = true;
  return records;
}

std::optional<SampleTable> read_idx_folder(const DataRequest& request, Subset subset) {
  require_one_of_each(request, "images and labels");
  const std::string prefix = subset == Subset::training ? "train" : "test";
  const auto images = request.path / (prefix + "-images.idx"), labels = request.path / (prefix + "-labels.idx");
  if (subset == Subset::test && !is_there(images) && !is_there(labels)) return std::nullopt;
  const ModelGraph& graph = request.model.graph;
  return SampleTable{images.string(),
                     columns(request, graph.inputs, [&](const DataTensor&) { return read_idx(images); }),
                     columns(request, graph.targets, [&](const DataTensor&) { return read_idx(labels); })};
}

std::string idx_bytes(ElementType type, const Shape& shape, std::string_view elements) {
  const auto code =
      std::find_if(kIdxTypes.begin(), kIdxTypes.end(), [&](const auto& row) { return row.first == type; });
  std::string bytes{'\0', '\0', code->second, static_cast<char>(shape.size())};
  for (const std::int64_t dimension : shape) {
    for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<char>(dimension >> shift & 0xff));
  }
  std::string data(elements);
  if (std::endian::native == std::endian::little) {
    for (auto at = data.begin(); at != data.end(); at += size_of(type)) std::reverse(at, at + size_of(type));
  }
  return bytes + data;
}

}  // namespace pp::run
