// Binary formats of data: IDX (of the MNIST files: two zero bytes, the element type, the number of
// dimensions, the dimensions as big-endian 32-bit numbers, then the elements, big-endian), the binary
// version of CIFAR-10 (records of a label's byte and 3 x 32 x 32 bytes of an image), tensors of a
// safetensors file, named as the model's inputs and targets, and token files (numbers of one type,
// little-endian).
#include "librun/data/readers.h"

#include <algorithm>
#include <array>
#include <bit>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "libprofile/core/error.h"
#include "librun/data/safetensors_header.h"

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

namespace fs = std::filesystem;

constexpr std::uint64_t kLabel = 1, kImage = 3 * 32 * 32, kRecord = kLabel + kImage;

using Files = std::vector<std::shared_ptr<const FileBytes>>;

void add(Files& files, const fs::path& path) {
  const auto file = std::make_shared<const FileBytes>(path);
  if (file->size() == 0 || file->size() % kRecord != 0) {
    throw Error(ErrorKind::data, path.string() + ": " + std::to_string(file->size()) +
                                     " bytes, a CIFAR-10 file has a multiple of " + std::to_string(kRecord) +
                                     " (a label and 3 x 32 x 32 bytes)");
  }
  files.push_back(file);
}

Files files_of(const DataRequest& request, Subset subset) {
  Files files;
  if (subset == Subset::test) {
    if (is_there(request.path / "test_batch.bin")) add(files, request.path / "test_batch.bin");
    return files;
  }
  for (int batch = 1;; ++batch) {
    const fs::path path = request.path / ("data_batch_" + std::to_string(batch) + ".bin");
    if (batch > 1 && !is_there(path)) return files;
    add(files, path);
  }
}

Records records_of(const DataRequest& request, const Files& files, std::uint64_t offset, Shape shape) {
  Records records{.source = request.path.string(), .type = ElementType::uint8, .shape = std::move(shape)};
  for (const auto& file : files)
    records.parts.push_back({file, offset, kRecord, static_cast<std::int64_t>(file->size() / kRecord)});
  return records;
}

constexpr std::array kSafetensorsTypes{
    std::pair{ElementType::boolean, "BOOL"sv}, std::pair{ElementType::uint8, "U8"sv},
    std::pair{ElementType::int8, "I8"sv},      std::pair{ElementType::uint16, "U16"sv},
    std::pair{ElementType::int16, "I16"sv},    std::pair{ElementType::uint32, "U32"sv},
    std::pair{ElementType::int32, "I32"sv},    std::pair{ElementType::int64, "I64"sv},
    std::pair{ElementType::float16, "F16"sv},  std::pair{ElementType::bfloat16, "BF16"sv},
    std::pair{ElementType::float32, "F32"sv},  std::pair{ElementType::float64, "F64"sv}};

ElementType element_type(const StoredRange& range) {
  std::string known;
  for (const auto& [type, name] : kSafetensorsTypes) {
    if (name == range.dtype) return type;
    known.append(known.empty() ? "" : ", ").append(name);
  }
  throw Error(ErrorKind::data, "/" + range.name + "/dtype: \"" + range.dtype + "\" is none of " + known);
}

/// The tensor of that name, and the type of its elements.
std::pair<StoredRange, ElementType> find(const SafetensorsHeader& header, const std::string& name) {
  const auto range = std::find_if(header.ranges.begin(), header.ranges.end(),
                                  [&](const StoredRange& r) { return r.name == name; });
  if (range == header.ranges.end()) {
    std::string names;
    for (const StoredRange& r : header.ranges) names.append(names.empty() ? "" : ", ").append(r.name);
    throw Error(ErrorKind::data, "no tensor is named \"" + name +
                                     "\", as the model's input or target is; it has " +
                                     (names.empty() ? "none" : names));
  }
  const ElementType type = element_type(*range);
  require_elements(*range, size_of(type), name_of(type));
  return {*range, type};
}

const std::array<std::string, 3> kTypes{"uint8", "uint16", "uint32"};

ElementType token_type(const DataRequest& request) {
  if (request.token_type.empty())
    throw Error(ErrorKind::usage, request.path.string() + ": tokens need --token-type uint8, uint16 or uint32");
  const auto type = find_enum<ElementType>(request.token_type);
  if (type == ElementType::uint8 || type == ElementType::uint16 || type == ElementType::uint32) return *type;
  throw Error(ErrorKind::usage, "--token-type: " + unknown_name(request.token_type, kTypes, "type"));
}

/// The tokens of a sample.
Shape sequence_of(const DataRequest& request) {
  require_one_of_each(request, "tokens");
  const DataTensor& input = first_input(request);
  const auto& targets = request.model.graph.targets;
  const auto target = std::ranges::find_if(targets, [&](const DataTensor& t) { return request.wants(t); });
  const bool alone = target == targets.end();
  if (!is_floating(input.type.dtype) && (alone || input.type.shape == target->type.shape))
    return input.type.shape;
  throw Error(ErrorKind::data,
              request.path.string() + ": tokens are for a model whose input and target are " +
                  "integers of one shape, \"" + input.name + "\" is " + std::string(name_of(input.type.dtype)) +
                  " " + to_text(input.type.shape) +
                  (alone ? "" : " and \"" + target->name + "\" is " + to_text(target->type.shape)));
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

std::optional<SampleTable> read_cifar10(const DataRequest& request, Subset subset) {
  require_one_of_each(request, "images and labels");
  const Files files = files_of(request, subset);
  if (files.empty()) return std::nullopt;
  const ModelGraph& graph = request.model.graph;
  const auto images = [&](const DataTensor&) { return records_of(request, files, kLabel, {3, 32, 32}); };
  const auto labels = [&](const DataTensor&) { return records_of(request, files, 0, {}); };
  return SampleTable{request.path.string(), columns(request, graph.inputs, images),
                     columns(request, graph.targets, labels)};
}

std::optional<SampleTable> read_stored_tensors(const DataRequest& request, Subset subset) {
  const auto path = file_of(request, subset, ".safetensors");
  if (!path) return std::nullopt;
  const auto file = std::make_shared<const FileBytes>(*path);
  const auto header = with_context(path->string(), [&] { return read_safetensors_header(*file); });
  const auto read = [&](const DataTensor& tensor) {
    const auto [range, type] = with_context(path->string(), [&] { return find(header, tensor.name); });
    return dense_records(path->string() + ": " + tensor.name, file, header.data_offset + range.begin,
                         range.shape, type);
  };
  const ModelGraph& graph = request.model.graph;
  return SampleTable{path->string(), columns(request, graph.inputs, read),
                     columns(request, graph.targets, read)};
}

std::optional<SampleTable> read_tokens(const DataRequest& request, Subset subset) {
  const ElementType type = token_type(request);
  const Shape shape = sequence_of(request);
  const auto path = file_of(request, subset, ".bin");
  if (!path) return std::nullopt;
  const auto file = std::make_shared<const FileBytes>(*path);
  const std::string source = path->string();
  const auto size = static_cast<std::uint64_t>(size_of(type));
  const std::uint64_t length = dense_bytes(source, shape, type);  // of a window
  if (file->size() % size != 0) {
    throw Error(ErrorKind::data, source + ": " + std::to_string(file->size()) +
                                     " bytes are no whole number of " + std::string(name_of(type)) +
                                     " tokens; give another --token-type");
  }
  const ModelGraph& graph = request.model.graph;
  const bool moved_on = std::ranges::any_of(graph.targets, [&](const auto& t) { return request.wants(t); });
  const std::uint64_t after = moved_on ? size : 0;  // the last window's target ends with it
  if (file->size() < length + after) {
    throw Error(ErrorKind::data, source + ": " + std::to_string(file->size() / size) +
                                     " tokens, a sample takes " + std::to_string(length / size) +
                                     (moved_on ? " and the one after them" : ""));
  }
  const auto windows = static_cast<std::int64_t>((file->size() - after) / length);
  const auto column = [&](std::uint64_t offset) {
    Records records{.source = source, .type = type, .shape = shape};
    records.parts.push_back({file, offset, length, windows});
    return records;
  };
  return SampleTable{source, columns(request, graph.inputs, [&](const DataTensor&) { return column(0); }),
                     columns(request, graph.targets, [&](const DataTensor&) { return column(size); })};
}

}  // namespace pp::run
