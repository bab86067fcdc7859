#include "libprofile/core/model/index_limit.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <tuple>
#include <vector>

#include "libprofile/core/model/label_call.h"
#include "libprofile/core/ops/op_table.h"

namespace pp {
namespace {

using Kind = TensorSource::Kind;

/// What both allow, where limit 0 allows everything.
IndexRange lower(const IndexRange& a, const IndexRange& b) {
  if (a.limit == 0) return b;
  if (b.limit == 0) return a;
  return {std::min(a.limit, b.limit), a.ignored == b.ignored ? a.ignored : std::nullopt};
}

/// The first size of what an argument names; 0 when it names no tensor.
std::int64_t first_size(const AtenCall& call, std::string_view argument, const std::vector<RowTensor>& inputs) {
  const auto found = call.arguments.find(argument);
  const auto* tensor =
      found == call.arguments.end() ? nullptr : std::get_if<TensorArgument>(&found->second.value);
  if (tensor == nullptr) return 0;
  const auto index = static_cast<std::size_t>(tensor->index);
  const bool parameter = tensor->kind == TensorArgument::Kind::parameter;
  if (!parameter && tensor->kind != TensorArgument::Kind::input) return 0;
  const Shape& shape = parameter ? call.parameters[index].type.shape : inputs[index].type.shape;
  return shape.empty() ? 0 : shape.front();
}

bool names_input(const AtenCall& call, std::string_view argument, int input) {
  const auto found = call.arguments.find(argument);
  return found != call.arguments.end() &&
         found->second == AtenValue{TensorArgument{TensorArgument::Kind::input, input}};
}

/// What a row of the op table allows of its input k.
IndexRange of_row(const OpRow* row, const Attributes& attributes, const std::vector<TensorType>& inputs,
                  std::size_t k) {
  if (row == nullptr || row->index_limit == nullptr) return {};
  IndexRange range{row->index_limit(attributes, inputs, k)};
  if (attributes.contains("ignore_index")) range.ignored = integer(attributes, "ignore_index");
  return range;
}

/// What an operation allows of its input k.
IndexRange of_reader(const Layer& reader, const std::vector<RowTensor>& inputs, int k) {
  if (!reader.call) {
    std::vector<TensorType> types;
    types.reserve(inputs.size());
    for (const RowTensor& input : inputs) types.push_back(input.type);
    return of_row(find_op(reader.op), reader.attributes, types, static_cast<std::size_t>(k));
  }
  const AtenCall& call = *reader.call;
  if (call.target.starts_with("aten::embedding") && names_input(call, "indices", k))
    return {first_size(call, "weight", inputs)};
  const auto labels = label_call(call);
  if (!labels || labels->labels != k) return {};
  return {labels->classes(inputs), labels->ignored};
}

/// Whether integers leave the operation as they came: what reads them then limits them as well.
bool keeps_values(const Layer& layer) {
  using namespace std::string_view_literals;
  constexpr std::array kCalls{"view"sv,  "reshape"sv, "flatten"sv,   "unsqueeze"sv,  "squeeze"sv, "expand"sv,
                              "slice"sv, "select"sv,  "transpose"sv, "permute"sv,    "to"sv,      "clone"sv,
                              "alias"sv, "detach"sv,  "cat"sv,       "contiguous"sv, "_to_copy"sv};
  if (!layer.call) return true;
  const std::string_view target = layer.call->target;
  const std::size_t begin = target.rfind(':') + 1;
  return std::ranges::find(kCalls, target.substr(begin, target.find('.') - begin)) != kCalls.end();
}

class Limits {
 public:
  explicit Limits(const ResolvedModel& model) : model_(model) {}

  IndexRange of(const TensorSource& source) {
    if (source.kind != Kind::layer) return find(source);
    const auto known = known_.find({source.index, source.output});
    if (known != known_.end()) return known->second;
    const IndexRange limit = find(source);
    return known_[{source.index, source.output}] = limit;
  }

 private:
  IndexRange find(const TensorSource& source) {
    IndexRange limit;
    for (std::size_t i = 0; i < model_.layers.size(); ++i)
      limit = lower(limit, by_layer(model_.graph.layers[i], model_.layers[i], static_cast<int>(i), source));
    return model_.graph.loss ? lower(limit, by_loss(source)) : limit;
  }

  IndexRange by_layer(const Layer& layer, const ResolvedLayer& resolved, int index,
                      const TensorSource& source) {
    const auto read = std::ranges::find(resolved.sources, source);
    if (read == resolved.sources.end()) return {};
    const int k = static_cast<int>(read - resolved.sources.begin());
    if (layer.op == kGraphOp) return within(layer.nodes, resolved, index, {Kind::input, k, 0});
    std::vector<RowTensor> inputs;
    for (const TensorType& type : resolved.inputs) inputs.push_back({type, 1});
    IndexRange limit = of_reader(layer, inputs, k);
    if (!keeps_values(layer)) return limit;
    for (std::size_t output = 0; output < resolved.outputs.size(); ++output) {
      if (resolved.outputs[output].dtype == DType::int64)
        limit = lower(limit, of({Kind::layer, index, static_cast<int>(output)}));
    }
    return limit;
  }

  /// `source` within the graph of layer `index`, -1 for the loss.
  IndexRange within(const std::vector<Layer>& nodes, const ResolvedLayer& resolved, int index,
                    const TensorSource& source) {
    const std::tuple key(index, source.kind, source.index, source.output);
    if (const auto known = within_.find(key); known != within_.end()) return known->second;
    IndexRange limit;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      const ResolvedNode& node = resolved.nodes[i];
      const auto read = std::ranges::find(node.sources, source);
      if (read == node.sources.end()) continue;
      limit = lower(limit, of_reader(nodes[i], node.inputs, static_cast<int>(read - node.sources.begin())));
      for (std::size_t output = 0; keeps_values(nodes[i]) && output < node.outputs.size(); ++output) {
        if (node.outputs[output].type.dtype != DType::int64) continue;
        const TensorSource made{Kind::layer, static_cast<int>(i), static_cast<int>(output)};
        limit = lower(limit, within(nodes, resolved, index, made));
        const auto leaves = std::ranges::find(resolved.graph_outputs, made);
        if (leaves == resolved.graph_outputs.end() || index < 0) continue;
        limit =
            lower(limit, of({Kind::layer, index, static_cast<int>(leaves - resolved.graph_outputs.begin())}));
      }
    }
    return within_[key] = limit;
  }

  IndexRange by_loss(const TensorSource& source) {
    const LossSpec& loss = *model_.graph.loss;
    IndexRange limit;
    for (std::size_t k = 0; k < model_.loss_sources.size(); ++k) {
      if (model_.loss_sources[k] != source) continue;
      if (loss.op == kGraphOp)
        return within(loss.nodes, model_.loss, -1, {Kind::input, static_cast<int>(k), 0});
      limit = lower(limit, of_row(find_loss(loss.op), loss.attributes, model_.loss.inputs, k));
    }
    return limit;
  }

  const ResolvedModel& model_;
  std::map<std::pair<int, int>, IndexRange> known_;
  std::map<std::tuple<int, Kind, int, int>, IndexRange> within_;
};

}  // namespace

IndexRange index_range(const ResolvedModel& model, const TensorSource& source) {
  return Limits(model).of(source);
}

std::int64_t index_limit(const ResolvedModel& model, const TensorSource& source) {
  return index_range(model, source).limit;
}

}  // namespace pp
