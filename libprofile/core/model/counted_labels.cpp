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

/// `add` of `aten::add.Tensor`.
std::string_view operation(const AtenCall& call) {
  const std::string_view target = call.target;
  const std::size_t begin = target.rfind(':') + 1;
  return target.substr(begin, target.find('.') - begin);
}

/// A mean over labels, and where the labels are in the graph.
struct Mean {
  LabelMean mean;
  TensorSource labels;
  bool same(const Mean& other) const {
    return labels == other.labels && mean.ignored == other.mean.ignored &&
           mean.class_weights == other.mean.class_weights;
  }
};

/// The means over labels that a loss is a linear function of.
class GraphMeans {
 public:
  explicit GraphMeans(const ResolvedModel& model) : nodes_(model.graph.loss->nodes), resolved_(model.loss) {
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      const bool mean = label_mean(i).has_value();
      depends_.push_back(mean ||
                         std::ranges::any_of(sources(i), [&](const TensorSource& s) { return depends(s); }));
    }
  }

  /// None where the loss is more than such a function, or has no such mean.
  std::vector<Mean> find() {
    if (!take(resolved_.graph_outputs.front()) || found_.empty()) return {};
    const bool one =
        !rest_ && std::ranges::all_of(found_, [&](const Mean& m) { return m.same(found_.front()); });
    if (!one) return found_;
    found_.front().mean.node = -1;
    return {found_.front()};
  }

 private:
  const std::vector<TensorSource>& sources(std::size_t node) const { return resolved_.nodes[node].sources; }

  bool depends(const TensorSource& value) const {
    return value.kind == Kind::layer && depends_[static_cast<std::size_t>(value.index)];
  }

  std::optional<LabelCall> label_mean(std::size_t node) const {
    const auto call = nodes_[node].call ? label_call(*nodes_[node].call) : std::nullopt;
    if (!call || !call->mean) return std::nullopt;
    const RowTensor& labels = resolved_.nodes[node].inputs[static_cast<std::size_t>(call->labels)];
    return labels.type.dtype == DType::int64 ? call : std::nullopt;
  }

  bool take(const TensorSource& value) {
    if (!depends(value)) return rest_ = true;
    const auto node = static_cast<std::size_t>(value.index);
    if (value.output != 0 || !nodes_[node].call) return false;
    const AtenCall& call = *nodes_[node].call;
    if (const auto labels = label_mean(node)) return take_mean(node, *labels, call);
    using namespace std::string_view_literals;
    constexpr std::array kSums{"add"sv,   "sub"sv,  "neg"sv,   "to"sv,  "_to_copy"sv, "clone"sv,
                               "alias"sv, "view"sv, "stack"sv, "sum"sv, "mean"sv};
    if (std::ranges::find(kSums, operation(call)) != kSums.end())
      return std::ranges::all_of(sources(node), [&](const TensorSource& s) { return take(s); });
    return is_multiple(call, sources(node).size()) && take(sources(node).front());
  }

  bool take_mean(std::size_t node, const LabelCall& labels, const AtenCall& call) {
    if (std::ranges::any_of(sources(node), [&](const TensorSource& s) { return depends(s); })) return false;
    const RowTensor& type = resolved_.nodes[node].inputs[static_cast<std::size_t>(labels.labels)];
    if (type.rows == 0) return false;
    Mean mean{{static_cast<int>(node), labels.ignored}, sources(node)[static_cast<std::size_t>(labels.labels)]};
    if (labels.weights) {
      if (labels.weights->kind != TensorArgument::Kind::constant) return false;
      mean.mean.class_weights = values_of(call.constants[static_cast<std::size_t>(labels.weights->index)]);
    }
    const auto known = [&](const Mean& m) { return m.mean.node == mean.mean.node; };
    if (std::ranges::none_of(found_, known)) found_.push_back(std::move(mean));
    return true;
  }

  /// Times or divided by a constant.
  static bool is_multiple(const AtenCall& call, std::size_t sources) {
    const std::string_view name = operation(call);
    const auto self = call.arguments.find("self");
    int reads = 0;
    for (const auto& [argument, value] : call.arguments)
      for_each_tensor(value, [&](const TensorArgument& t) { reads += t.kind == TensorArgument::Kind::input; });
    return (name == "mul" || name == "div") && sources == 1 && reads == 1 && self != call.arguments.end() &&
           self->second == AtenValue{TensorArgument{TensorArgument::Kind::input, 0}};
  }

  const std::vector<Layer>& nodes_;
  const ResolvedLayer& resolved_;
  std::vector<bool> depends_;  ///< per node: on a mean over labels
  std::vector<Mean> found_;
  bool rest_ = false;  ///< something is added that is no such mean
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
  std::vector<Mean> means;
  if (loss.op == kGraphOp) {
    means = GraphMeans(model).find();
  } else if (loss.attributes.contains("ignore_index")) {
    means = {{{-1, integer(loss.attributes, "ignore_index")}, {Kind::input, 1, 0}}};
  }
  CountedLabels counted;
  std::vector<TensorSource> labels;
  for (const Mean& mean : means) labels.push_back(mean.labels);
  if (means.empty() || !LossPart(model, counted).take(labels)) {
    refuse_ignored_classes(model);
    return std::nullopt;
  }
  for (Mean& mean : means) {
    const RowTensor type = type_of(model, mean.labels);
    mean.mean.per_sample = static_cast<double>(type.rows * element_count(type.type.shape));
    counted.means.push_back(std::move(mean.mean));
  }
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
