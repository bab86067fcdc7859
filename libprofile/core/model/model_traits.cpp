#include "libprofile/core/model/model_traits.h"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <tuple>
#include <variant>
#include <vector>

#include "libprofile/core/model/counted_labels.h"
#include "libprofile/core/ops/op_table.h"
#include "libprofile/core/text.h"

namespace pp {

namespace {

bool looks_ahead(const Layer& layer) {
  const OpRow* row = find_op(layer.op);
  if (row == nullptr) return true;
  if (row->positions == Positions::together) {  // but where it takes parts of the features
    const auto dim = layer.attributes.find("dim");
    return dim == layer.attributes.end() || dim->second == Attribute{std::int64_t{0}};
  }
  return row->positions == Positions::causal && !boolean(layer.attributes, "causal");
}

bool all_begin_with(const std::vector<TensorType>& tensors, std::int64_t length) {
  return std::ranges::all_of(
      tensors, [&](const TensorType& type) { return !type.shape.empty() && type.shape.front() == length; });
}

}  // namespace

bool runs_by_pieces(const ResolvedModel& model, std::int64_t length) {
  for (std::size_t l = 0; l < model.layers.size(); ++l) {
    const ResolvedLayer& resolved = model.layers[l];
    if (looks_ahead(model.graph.layers[l]) || !all_begin_with(resolved.inputs, length) ||
        !all_begin_with(resolved.outputs, length))
      return false;
  }
  return true;
}

namespace {

bool any_draws(const std::vector<Layer>& nodes) {
  return std::ranges::any_of(nodes, [](const Layer& node) { return draws_numbers(node); });
}

/// The dropout of an operation that nothing else keeps from attending by one kernel; else 0.
double dropout_in_the_way(const Layer& layer, std::span<const TensorType> inputs) {
  const OpRow* row = find_op(layer.op);
  if (row == nullptr || !row->work.attention) return 0;
  Attributes without = layer.attributes;
  const auto found = without.find("dropout");
  if (found == without.end()) return 0;
  const double dropout = number(layer.attributes, "dropout");
  found->second = 0.0;
  return dropout > 0 && row->work.inside(without, inputs).one_kernel ? dropout : 0;
}

}  // namespace

bool draws_numbers(const Layer& layer) {
  const OpRow* row = find_op(layer.op);
  const auto above_zero = [&](const AttributeSpec& spec) {
    const auto given = layer.attributes.find(spec.name);
    const auto* value = given == layer.attributes.end() ? nullptr : std::get_if<double>(&given->second);
    return spec.probability && value != nullptr && *value > 0;
  };
  return (row != nullptr && std::ranges::any_of(row->attributes, above_zero)) || any_draws(layer.nodes);
}

bool draws_numbers(const LossSpec& loss) { return any_draws(loss.nodes); }

std::string scores_kept(const ResolvedModel& model) {
  double first = 0;
  std::int64_t count = 0;
  const auto look = [&](const Layer& layer, std::span<const TensorType> inputs) {
    const double dropout = dropout_in_the_way(layer, inputs);
    if (dropout > 0 && count++ == 0) first = dropout;
  };
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    look(model.graph.layers[i], model.layers[i].inputs);
    for (std::size_t n = 0; n < model.layers[i].nodes.size(); ++n) {
      std::vector<TensorType> inputs;
      for (const RowTensor& input : model.layers[i].nodes[n].inputs) inputs.push_back(input.type);
      look(model.graph.layers[i].nodes[n], inputs);
    }
  }
  if (count == 0) return "";
  return "attention keeps its scores in " + counted(count, "operation") +
         ", because dropout = " + Json(first).dump() +
         "; with dropout = 0 one kernel attends without them, in less time and memory";
}

namespace {

using Kind = TensorSource::Kind;

/// What both allow, where limit 0 allows everything.
IndexRange lower(const IndexRange& a, const IndexRange& b) {
  if (a.limit == 0) return b;
  if (b.limit == 0) return a;
  return {std::min(a.limit, b.limit), a.ignored == b.ignored ? a.ignored : std::nullopt,
          a.in_mean || b.in_mean};
}

/// The first size of the tensor that an argument names, or the number that it is; 0: neither.
std::int64_t first_size(const AtenCall& call, std::string_view argument, const std::vector<RowTensor>& inputs) {
  const auto found = call.arguments.find(argument);
  if (found == call.arguments.end()) return 0;
  if (const auto* number = std::get_if<std::int64_t>(&found->second.value))
    return std::max<std::int64_t>(0, *number);
  const auto* tensor = std::get_if<TensorArgument>(&found->second.value);
  if (tensor == nullptr) return 0;
  const auto index = static_cast<std::size_t>(tensor->index);
  const auto type = [&]() -> const TensorType& {
    switch (tensor->kind) {
      case TensorArgument::Kind::parameter: return call.parameters[index].type;
      case TensorArgument::Kind::buffer: return call.buffers[index].type;
      case TensorArgument::Kind::constant: return call.constants[index].type;
      case TensorArgument::Kind::input: break;
    }
    return inputs[index].type;
  };
  return type().shape.empty() ? 0 : type().shape.front();
}

/// A function of LibTorch whose argument `indices` holds integers below the first size of `size`, or below the
/// number that this is.
struct Indexing {
  std::string_view function, indices, size;
};
constexpr std::array kIndexing{Indexing{"embedding", "indices", "weight"},
                               Indexing{"embedding_bag", "indices", "weight"},
                               Indexing{"index", "indices", "self"}, Indexing{"one_hot", "self", "num_classes"},
                               Indexing{"multi_margin_loss", "target", "self"}};

/// `aten::view.dtype` -> `view`
std::string_view function_of(const AtenCall& call) {
  const std::string_view target = call.target;
  const std::size_t begin = target.rfind(':') + 1;
  return target.substr(begin, target.find('.') - begin);
}

/// Whether the argument is the input, or a list that begins with it.
bool names_input(const AtenCall& call, std::string_view argument, int input) {
  const auto found = call.arguments.find(argument);
  if (found == call.arguments.end()) return false;
  const auto* list = std::get_if<AtenList>(&found->second.value);
  const AtenValue& value = list == nullptr || list->empty() ? found->second : list->front();
  return value == AtenValue{TensorArgument{TensorArgument::Kind::input, input}};
}

/// What a row of the op table allows of its input k.
IndexRange of_row(const OpRow* row, const Attributes& attributes, const std::vector<TensorType>& inputs,
                  std::size_t k) {
  if (row == nullptr || row->index_limit == nullptr) return {};
  IndexRange range{row->index_limit(attributes, inputs, k)};
  range.in_mean = attributes.contains("ignore_index");
  if (range.in_mean) range.ignored = integer(attributes, "ignore_index");
  return range;
}

/// What an operation allows of each of its inputs.
std::vector<IndexRange> of_reader(const Layer& reader, const std::vector<RowTensor>& inputs) {
  std::vector<IndexRange> ranges(inputs.size());
  if (!reader.call) {
    std::vector<TensorType> types;
    types.reserve(inputs.size());
    for (const RowTensor& input : inputs) types.push_back(input.type);
    for (std::size_t k = 0; k < ranges.size(); ++k)
      ranges[k] = of_row(find_op(reader.op), reader.attributes, types, k);
    return ranges;
  }
  const AtenCall& call = *reader.call;
  const auto indexing = std::ranges::find(kIndexing, function_of(call), &Indexing::function);
  const auto labels = label_call(call);
  for (std::size_t k = 0; k < ranges.size(); ++k) {
    const int input = static_cast<int>(k);
    if (indexing != kIndexing.end() && names_input(call, indexing->indices, input))
      ranges[k] = {first_size(call, indexing->size, inputs)};
    if (labels && labels->labels == input) ranges[k] = {labels->classes(inputs), labels->ignored, labels->mean};
  }
  return ranges;
}

/// Whether integers leave the operation as they came: what reads them then limits them as well.
bool keeps_values(const Layer& layer) {
  using namespace std::string_view_literals;
  constexpr std::array kCalls{"view"sv,  "reshape"sv, "flatten"sv,   "unsqueeze"sv,  "squeeze"sv, "expand"sv,
                              "slice"sv, "select"sv,  "transpose"sv, "permute"sv,    "to"sv,      "clone"sv,
                              "alias"sv, "detach"sv,  "cat"sv,       "contiguous"sv, "_to_copy"sv};
  return !layer.call || std::ranges::find(kCalls, function_of(*layer.call)) != kCalls.end();
}

/// What is known so far of the tensors of a graph.
class Limits {
 public:
  IndexRange of(const TensorSource& source) const {
    const auto found = limits_.find(key(source));
    return found == limits_.end() ? IndexRange{} : found->second;
  }
  void lower_to(const TensorSource& source, IndexRange limit) {
    if (limit.limit != 0) limits_[key(source)] = lower(of(source), limit);
  }

 private:
  static std::tuple<Kind, int, int> key(const TensorSource& source) {
    return {source.kind, source.index, source.output};
  }
  std::map<std::tuple<Kind, int, int>, IndexRange> limits_;
};

/// Lowers the limits of what `reader` reads, once those of its outputs are known.
template <class Outputs>
void read_by(const Layer& reader, const std::vector<TensorSource>& sources,
             const std::vector<RowTensor>& inputs, const Outputs& outputs, int index, Limits& limits) {
  IndexRange behind;
  for (std::size_t k = 0; keeps_values(reader) && k < outputs.size(); ++k) {
    if (outputs[k].dtype == DType::int64)
      behind = lower(behind, limits.of({Kind::layer, index, static_cast<int>(k)}));
  }
  const std::vector<IndexRange> own = of_reader(reader, inputs);
  for (std::size_t k = 0; k < sources.size(); ++k) limits.lower_to(sources[k], lower(own[k], behind));
}

/// The same of a graph of nodes, the limits of whose outputs are `outputs`, for each of `inputs` tensors that
/// it gets. Nodes read earlier ones only, so one walk from the last to the first settles all.
std::vector<IndexRange> of_graph(const std::vector<Layer>& nodes, const ResolvedLayer& resolved,
                                 std::span<const IndexRange> outputs, std::size_t inputs) {
  Limits limits;
  for (std::size_t k = 0; k < outputs.size(); ++k) limits.lower_to(resolved.graph_outputs[k], outputs[k]);
  for (std::size_t i = nodes.size(); i-- > 0;) {
    std::vector<TensorType> types;
    for (const RowTensor& output : resolved.nodes[i].outputs) types.push_back(output.type);
    read_by(nodes[i], resolved.nodes[i].sources, resolved.nodes[i].inputs, types, static_cast<int>(i), limits);
  }
  std::vector<IndexRange> found;
  for (std::size_t k = 0; k < inputs; ++k) found.push_back(limits.of({Kind::input, static_cast<int>(k), 0}));
  return found;
}

void read_by_loss(const ResolvedModel& model, Limits& limits) {
  const LossSpec& loss = *model.graph.loss;
  const std::size_t count = model.loss_sources.size();
  const auto inside =
      loss.op == kGraphOp ? of_graph(loss.nodes, model.loss, {}, count) : std::vector<IndexRange>(count);
  for (std::size_t k = 0; k < count; ++k) {
    const IndexRange limit =
        loss.op == kGraphOp ? inside[k] : of_row(find_loss(loss.op), loss.attributes, model.loss.inputs, k);
    limits.lower_to(model.loss_sources[k], limit);
  }
}

void read_by_layer(const ResolvedModel& model, std::size_t index, Limits& limits) {
  const Layer& layer = model.graph.layers[index];
  const ResolvedLayer& resolved = model.layers[index];
  const int number = static_cast<int>(index);
  if (layer.op == kGraphOp) {
    std::vector<IndexRange> outputs;
    for (std::size_t k = 0; k < resolved.outputs.size(); ++k)
      outputs.push_back(limits.of({Kind::layer, number, static_cast<int>(k)}));
    const auto inside = of_graph(layer.nodes, resolved, outputs, resolved.sources.size());
    for (std::size_t k = 0; k < inside.size(); ++k) limits.lower_to(resolved.sources[k], inside[k]);
    return;
  }
  std::vector<RowTensor> inputs;
  for (const TensorType& type : resolved.inputs) inputs.push_back({type, 1});
  read_by(layer, resolved.sources, inputs, resolved.outputs, number, limits);
}

}  // namespace

IndexRange index_range(const ResolvedModel& model, const TensorSource& source) {
  Limits limits;
  if (model.graph.loss) read_by_loss(model, limits);
  for (std::size_t i = model.layers.size(); i-- > 0;) read_by_layer(model, i, limits);
  return limits.of(source);
}

std::int64_t index_limit(const ResolvedModel& model, const TensorSource& source) {
  return index_range(model, source).limit;
}

}  // namespace pp
