#include "libprofile/core/model/model_names.h"

#include <algorithm>
#include <charconv>
#include <ranges>
#include <utility>
#include <vector>

namespace pp::detail {
namespace {

std::string member(const std::string& pointer, std::string_view list, std::size_t i) {
  return append_pointer(append_pointer(pointer, list), std::to_string(i));
}

}  // namespace

bool is_name(std::string_view name) {
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-/";
  return !name.empty() && name.find_first_not_of(kAllowed) == std::string_view::npos;
}

bool is_dotted_name(std::string_view name) {
  return is_name(name) && name.find('/') == std::string_view::npos &&
         name.find("..") == std::string_view::npos && !name.starts_with('.') && !name.ends_with('.');
}

std::string_view NameTable::name_part(std::string_view reference) {
  return reference.substr(0, reference.find(':'));
}

std::string in_quotes(std::string_view name) { return std::string(1, '"').append(name).append(1, '"'); }

NameTable::NameTable(const ModelGraph& graph, std::string pointer)
    : graph_(graph), pointer_(std::move(pointer)) {
  for (std::size_t i = 0; i < graph.inputs.size(); ++i) {
    declare_tensor(graph.inputs[i], {TensorSource::Kind::input, static_cast<int>(i), 0},
                   member(pointer_, "inputs", i));
  }
  for (std::size_t i = 0; i < graph.targets.size(); ++i) {
    declare_tensor(graph.targets[i], {TensorSource::Kind::target, static_cast<int>(i), 0},
                   member(pointer_, "targets", i));
  }
  for (std::size_t i = 0; i < graph.layers.size(); ++i) {
    declare(graph.layers[i].name, {TensorSource::Kind::layer, static_cast<int>(i), 0},
            member(pointer_, "layers", i));
  }
}

void NameTable::declare(const std::string& name, TensorSource source, const std::string& pointer) {
  if (!is_name(name))
    fail_at(pointer + "/name", in_quotes(name) + " is not a name; use letters, digits and _ . - /");
  const auto [known, added] = entries_.emplace(name, Entry{source, pointer});
  if (!added) {
    fail_at(pointer + "/name", "duplicate name " + in_quotes(name) + ", already at " + known->second.pointer +
                                   "; rename one of them");
  }
}

void NameTable::declare_tensor(const DataTensor& tensor, TensorSource source, const std::string& pointer) {
  declare(tensor.name, source, pointer);
  const Shape& shape = tensor.type.shape;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] >= 1) continue;
    fail_at(member(pointer, "shape", d), "must be an integer from 1 upwards, not " + std::to_string(shape[d]));
  }
  if (too_large(shape)) fail_at(pointer + "/shape", "has more than 2^40 elements; use smaller sizes");
  if (tensor.type.dtype == DType::boolean) fail_at(pointer + "/dtype", "data are no bool; use uint8, 0 and 1");
}

TensorSource NameTable::source(const std::string& reference, std::size_t reader,
                               const std::string& pointer) const {
  const auto known = entries_.find(name_part(reference));
  if (known == entries_.end()) {
    const std::string such_as =
        graph_.inputs.empty() ? "" : " or an input, such as " + in_quotes(graph_.inputs[0].name);
    fail_at(pointer, "unknown name " + in_quotes(reference) + "; use an earlier layer" + such_as);
  }
  const TensorSource source = known->second.source;
  const auto index = static_cast<std::size_t>(source.index);
  if (source.kind == TensorSource::Kind::layer && index >= reader) refuse_order(index, reader, pointer);
  return source;
}

int NameTable::output_number(std::string_view reference, std::size_t count, const std::string& pointer) {
  const std::string_view name = name_part(reference);
  if (name.size() == reference.size()) return 0;
  const std::string_view text = reference.substr(name.size() + 1);
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool complete = error == std::errc{} && end == text.data() + text.size();
  if (complete && number >= 0 && static_cast<std::size_t>(number) < count) return number;
  const std::string remedy =
      count == 1 ? "it has one, write " + in_quotes(name) : "use 0 to " + std::to_string(count - 1);
  fail_at(pointer, in_quotes(name) + " has no output " + in_quotes(text) + "; " + remedy);
}

int NameTable::earlier_layer(std::string_view name, std::size_t reader) const {
  const auto known = entries_.find(name);
  if (known == entries_.end() || known->second.source.kind != TensorSource::Kind::layer) return -1;
  const int layer = known->second.source.index;
  return static_cast<std::size_t>(layer) < reader ? layer : -1;
}

/// A layer reads one that stands later, or itself: a cycle, or an order to repair.
void NameTable::refuse_order(std::size_t layer, std::size_t reader, const std::string& pointer) const {
  if (reader >= graph_.layers.size())
    throw Error(ErrorKind::internal, "a reference from outside the layers cannot be too early");
  const std::string path = path_back(layer, reader);
  if (!path.empty()) {
    fail_at(pointer, "cycle: " + in_quotes(graph_.layers[reader].name) + path +
                         "; a model has no cycles, remove one of these inputs");
  }
  fail_at(pointer, in_quotes(graph_.layers[layer].name) + " stands later in the file, at " +
                       member(pointer_, "layers", layer) + "; move it before " +
                       in_quotes(graph_.layers[reader].name));
}

/// ` reads "b" reads "a"`: the layers after `to`, first `from`, along inputs back to `to`. Empty when `from`
/// does not depend on `to`. O(layers + edges).
std::string NameTable::path_back(std::size_t from, std::size_t to) const {
  std::map<std::size_t, std::size_t> reader_of{{from, from}};
  std::vector<std::size_t> open{from};
  while (!open.empty() && !reader_of.contains(to)) {
    const std::size_t layer = open.back();
    open.pop_back();
    for (const std::string& input : graph_.layers[layer].inputs) {
      const int next = earlier_layer(name_part(input), graph_.layers.size());
      if (next >= 0 && reader_of.emplace(static_cast<std::size_t>(next), layer).second)
        open.push_back(static_cast<std::size_t>(next));
    }
  }
  if (!reader_of.contains(to)) return "";
  std::vector<std::size_t> chain{to};
  while (chain.back() != from) chain.push_back(reader_of.at(chain.back()));
  std::string path;
  for (const std::size_t layer : std::ranges::reverse_view(chain))
    path.append(" reads ").append(in_quotes(graph_.layers[layer].name));
  return path;
}

}  // namespace pp::detail
