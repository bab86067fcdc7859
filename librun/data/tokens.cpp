// Token files for language models: any file as numbers of one type, little-endian.
#include <algorithm>
#include <array>
#include <memory>
#include <string>

#include "libprofile/core/error.h"
#include "librun/data/readers.h"

namespace pp::run {

namespace {

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
