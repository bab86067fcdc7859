// Samples as tensors of a safetensors file, named as the model's inputs and targets.
#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "libprofile/core/error.h"
#include "librun/data/readers.h"
#include "librun/data/safetensors_header.h"

namespace pp::run {

namespace {

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

}  // namespace

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

}  // namespace pp::run
