#include "libprofile/core/model/counted_labels.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "libprofile/core/error.h"
#include "libprofile/core/ops/op_table.h"

namespace pp {

namespace {

using Kind = TensorSource::Kind;

/// What a mean of labels is a mean of.
struct Mean {
  TensorSource labels;  ///< within the graph
  std::int64_t ignored = 0;
  const AtenConstant* class_weights = nullptr;
  bool operator==(const Mean& other) const {
    return labels == other.labels && ignored == other.ignored &&
           (class_weights == other.class_weights ||
            (class_weights != nullptr && other.class_weights != nullptr &&
             *class_weights == *other.class_weights));
  }
};

/// `add` of `aten::add.Tensor`.
std::string_view operation(const AtenCall& call) {
  const std::string_view target = call.target;
  const std::size_t begin = target.rfind(':') + 1;
  return target.substr(begin, target.find('.') - begin);
}

class GraphMean {
 public:
  explicit GraphMean(const ResolvedModel& model) : nodes_(model.graph.loss->nodes), resolved_(model.loss) {}

  /// Of what the graph hands out.
  std::optional<Mean> find() const { return of(resolved_.graph_outputs.front()); }

 private:
  std::optional<Mean> of(const TensorSource& value) const {
    if (value.kind != Kind::layer || value.output != 0) return std::nullopt;
    const Layer& node = nodes_[static_cast<std::size_t>(value.index)];
    const ResolvedNode& resolved = resolved_.nodes[static_cast<std::size_t>(value.index)];
    if (!node.call) return std::nullopt;
    if (const auto call = label_call(*node.call)) return of_call(*call, *node.call, resolved);
    return is_linear(*node.call, resolved) ? common(resolved) : std::nullopt;
  }

  /// What all inputs of a node are means of.
  std::optional<Mean> common(const ResolvedNode& node) const {
    const std::optional<Mean> first = of(node.sources.front());
    const bool same = std::ranges::all_of(node.sources, [&](const TensorSource& s) { return of(s) == first; });
    return same ? first : std::nullopt;
  }

  static std::optional<Mean> of_call(const LabelCall& call, const AtenCall& aten, const ResolvedNode& node) {
    const RowTensor& labels = node.inputs[static_cast<std::size_t>(call.labels)];
    if (!call.mean || labels.type.dtype != DType::int64 || labels.rows == 0) return std::nullopt;
    Mean mean{node.sources[static_cast<std::size_t>(call.labels)], call.ignored};
    if (call.weights) {
      if (call.weights->kind != TensorArgument::Kind::constant) return std::nullopt;
      mean.class_weights = &aten.constants[static_cast<std::size_t>(call.weights->index)];
    }
    return mean;
  }

  /// A sum, a copy, or a multiple by constants.
  static bool is_linear(const AtenCall& call, const ResolvedNode& node) {
    using namespace std::string_view_literals;
    constexpr std::array kAny{"add"sv, "sub"sv, "neg"sv, "to"sv, "_to_copy"sv, "clone"sv, "alias"sv, "view"sv};
    constexpr std::array kOfOne{"mul"sv, "div"sv};
    const std::string_view name = operation(call);
    if (std::ranges::find(kAny, name) != kAny.end()) return true;
    const auto self = call.arguments.find("self");
    return std::ranges::find(kOfOne, name) != kOfOne.end() && node.sources.size() == 1 &&
           self != call.arguments.end() &&
           self->second == AtenValue{TensorArgument{TensorArgument::Kind::input, 0}} && reads(call) == 1;
  }

  static int reads(const AtenCall& call) {
    int count = 0;
    for (const auto& [name, value] : call.arguments)
      for_each_tensor(value, [&](const TensorArgument& t) { count += t.kind == TensorArgument::Kind::input; });
    return count;
  }

  const std::vector<Layer>& nodes_;
  const ResolvedLayer& resolved_;
};

/// The nodes of the loss's graph that some of its tensors are made by, as a graph of its own.
template <class Part>
class LossPart {
 public:
  LossPart(const ResolvedModel& model, Part& to) : model_(model), to_(to) {}

  /// False when a layer's output takes part.
  bool take(const std::vector<TensorSource>& wanted) {
    for (const TensorSource& value : wanted) mark(value);
    for (std::size_t i = 0; i < model_.loss.nodes.size(); ++i) {
      const int index = static_cast<int>(i);
      if (!nodes_.contains(index)) continue;
      nodes_[index] = static_cast<int>(to_.nodes.size());
      to_.nodes.push_back(model_.graph.loss->nodes[i]);
      ResolvedNode node = model_.loss.nodes[i];
      for (TensorSource& source : node.sources) source = moved(source);
      to_.made.nodes.push_back(std::move(node));
    }
    for (const TensorSource& value : wanted) to_.made.graph_outputs.push_back(moved(value));
    return std::ranges::none_of(to_.made.sources, [](const TensorSource& s) { return s.kind == Kind::layer; });
  }

 private:
  void mark(const TensorSource& value) {
    if (value.kind != Kind::layer) return input(value.index);
    if (!nodes_.emplace(value.index, 0).second) return;
    for (const TensorSource& source : model_.loss.nodes[static_cast<std::size_t>(value.index)].sources)
      mark(source);
  }

  void input(int k) {
    if (!inputs_.emplace(k, static_cast<int>(to_.made.sources.size())).second) return;
    to_.made.sources.push_back(model_.loss_sources[static_cast<std::size_t>(k)]);
    to_.made.inputs.push_back(model_.loss.inputs[static_cast<std::size_t>(k)]);
  }

  TensorSource moved(TensorSource value) const {
    value.index = (value.kind == Kind::layer ? nodes_ : inputs_).at(value.index);
    return value;
  }

  const ResolvedModel& model_;
  Part& to_;
  std::map<int, int> nodes_, inputs_;  ///< of the loss: their place in the new graph
};

RowTensor type_of(const ResolvedModel& model, const TensorSource& value) {
  const auto index = static_cast<std::size_t>(value.index);
  if (value.kind == Kind::layer) return model.loss.nodes[index].outputs[static_cast<std::size_t>(value.output)];
  return {model.loss.inputs[index], 1};
}

// Labels of an ignored class would count in no micro-batch as they do in the whole batch.
void refuse_ignored_classes(const ResolvedModel& model) {
  for (std::size_t i = 0; i < model.graph.loss->nodes.size(); ++i) {
    const Layer& node = model.graph.loss->nodes[i];
    const auto call = node.call ? label_call(*node.call) : std::nullopt;
    if (!call || !call->mean) continue;
    if (call->ignored < 0 || call->ignored >= call->classes(model.loss.nodes[i].inputs)) continue;
    throw Error(
        ErrorKind::data,
        "the loss of model \"" + model.graph.name + "\": node \"" + node.name + "\" ignores label " +
            std::to_string(call->ignored) +
            ", and the loss is more than its mean over the other labels, so that micro-batches do not add "
            "up to it; return the cross entropy alone, or ignore a label outside the classes such as -100");
  }
}

}  // namespace

std::optional<Answers> answers_of(const ResolvedModel& model) {
  if (!model.graph.loss) return std::nullopt;
  const LossSpec& loss = *model.graph.loss;
  Answers answers;
  std::vector<TensorSource> told;
  if (loss.op != kGraphOp && loss.attributes.contains("ignore_index")) {
    answers.ignored = integer(loss.attributes, "ignore_index");
    if (model.loss.inputs.front().shape.size() == 3) answers.classes = 1;
    told = {{Kind::input, 0, 0}, {Kind::input, 1, 0}};
  }
  for (std::size_t i = 0; i < loss.nodes.size(); ++i) {
    const auto call = loss.nodes[i].call ? label_call(*loss.nodes[i].call) : std::nullopt;
    if (!call) continue;
    const ResolvedNode& node = model.loss.nodes[i];
    const auto prediction = static_cast<std::size_t>(call->prediction),
               labels = static_cast<std::size_t>(call->labels);
    if (!told.empty() || node.inputs[labels].type.dtype != DType::int64) return std::nullopt;
    answers.ignored = call->ignored;
    answers.classes = 1;
    told = {node.sources[prediction], node.sources[labels]};
  }
  if (told.empty()) return std::nullopt;
  LossPart(model, answers).take(told);
  return answers;
}

std::optional<CountedLabels> counted_labels(const ResolvedModel& model) {
  if (!model.graph.loss) return std::nullopt;
  const LossSpec& loss = *model.graph.loss;
  CountedLabels counted;
  std::optional<Mean> mean;
  if (loss.op == kGraphOp) {
    mean = GraphMean(model).find();
  } else if (loss.attributes.contains("ignore_index")) {
    mean = Mean{{Kind::input, 1, 0}, integer(loss.attributes, "ignore_index")};
  }
  if (!mean || !LossPart(model, counted).take({mean->labels})) {
    refuse_ignored_classes(model);
    return std::nullopt;
  }
  counted.ignored = mean->ignored;
  if (mean->class_weights != nullptr) counted.class_weights = values_of(*mean->class_weights);
  const RowTensor labels = type_of(model, mean->labels);
  counted.per_sample = static_cast<double>(labels.rows * element_count(labels.type.shape));
  return counted;
}

namespace {

template <class T>
const T* find(const AtenCall& call, std::string_view argument) {
  const auto found = call.arguments.find(argument);
  return found == call.arguments.end() ? nullptr : std::get_if<T>(&found->second.value);
}

std::optional<int> input(const AtenCall& call, std::string_view argument) {
  const auto* tensor = find<TensorArgument>(call, argument);
  if (tensor == nullptr || tensor->kind != TensorArgument::Kind::input) return std::nullopt;
  return tensor->index;
}

}  // namespace

std::optional<LabelCall> label_call(const AtenCall& call) {
  if (!call.target.starts_with("aten::cross_entropy_loss") && !call.target.starts_with("aten::nll_loss"))
    return std::nullopt;
  const std::optional<int> prediction = input(call, "self"), labels = input(call, "target");
  if (!prediction || !labels) return std::nullopt;
  LabelCall found{*prediction, *labels};
  if (const auto* ignored = find<std::int64_t>(call, "ignore_index")) found.ignored = *ignored;
  if (const auto* reduction = find<std::int64_t>(call, "reduction")) found.mean = *reduction == 1;
  if (const auto* weights = find<TensorArgument>(call, "weight")) found.weights = *weights;
  return found;
}

// The prediction is [rows, classes, ...]: its first size beside the batch.
std::int64_t LabelCall::classes(const std::vector<RowTensor>& inputs) const {
  const Shape& shape = inputs[static_cast<std::size_t>(prediction)].type.shape;
  return shape.empty() ? 0 : shape.front();
}

}  // namespace pp
