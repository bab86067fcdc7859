#include "libprofile/estimate/tensor_split.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "libprofile/core/error.h"
#include "libprofile/core/index.h"
#include "libprofile/core/model/product_flops.h"
#include "libprofile/core/ops/op_table.h"

namespace pp::profile {
namespace {

constexpr std::int64_t kVocabularyMultiple = 128;

/// An operation of the model: a layer, a node of a graph, or the loss.
struct Flat {
  const OpRow* row = nullptr;  ///< null: a call of LibTorch, or a graph as a loss
  std::string name;
  const Attributes* attributes = nullptr;
  std::size_t input_count = 0;
  std::vector<int> producers = {};  ///< operations; data of the model is none
  std::vector<int> consumers = {};
};

class Flattened {
 public:
  explicit Flattened(const ResolvedModel& model) {
    for (int l = 0; l < model.layer_count(); ++l)
      add_layer(model.graph.layers[at(l)], model.layers[at(l)], model.layers[at(l)].sources, l);
    if (!model.graph.loss) return;
    const LossSpec& loss = *model.graph.loss;
    Layer layer{.name = "loss", .op = loss.op, .inputs = loss.inputs, .attributes = {}, .nodes = loss.nodes};
    if (loss.nodes.empty()) {
      add(find_loss(loss.op), "loss", loss.attributes, of_sources(model.loss_sources), loss.inputs.size());
    } else {
      add_layer(layer, model.loss, model.loss_sources, model.layer_count());
    }
  }

  std::vector<Flat> operations;

 private:
  static constexpr int kData = -1;

  /// Of each source the operation that makes it, or kData.
  std::vector<int> of_sources(const std::vector<TensorSource>& sources) const {
    std::vector<int> result;
    for (const TensorSource& source : sources) {
      result.push_back(source.kind == TensorSource::Kind::layer ? made_.at({source.index, source.output})
                                                                : kData);
    }
    return result;
  }

  int add(const OpRow* row, std::string name, const Attributes& attributes, const std::vector<int>& from,
          std::size_t inputs) {
    const int index = static_cast<int>(operations.size());
    operations.push_back({row, std::move(name), &attributes, inputs});
    for (const int producer : from) {
      if (producer == kData) continue;
      operations.back().producers.push_back(producer);
      operations[at(producer)].consumers.push_back(index);
    }
    return index;
  }

  void add_layer(const Layer& layer, const ResolvedLayer& resolved, const std::vector<TensorSource>& sources,
                 int index) {
    const std::vector<int> inputs = of_sources(sources);
    if (resolved.nodes.empty()) {
      const OpRow* row = layer.call ? nullptr : find_op(layer.op);
      const int made = add(row, layer.name, layer.attributes, inputs, inputs.size());
      for (int o = 0; o < static_cast<int>(resolved.outputs.size()); ++o) made_[{index, o}] = made;
      return;
    }
    std::vector<int> nodes;
    const auto maker = [&](const TensorSource& source) {
      return source.kind == TensorSource::Kind::layer ? nodes[at(source.index)] : inputs[at(source.index)];
    };
    for (std::size_t n = 0; n < resolved.nodes.size(); ++n) {
      const Layer& node = layer.nodes[n];
      std::vector<int> from;
      for (const TensorSource& source : resolved.nodes[n].sources) from.push_back(maker(source));
      nodes.push_back(add(node.call ? nullptr : find_op(node.op), layer.name + "." + node.name, node.attributes,
                          from, from.size()));
    }
    for (int o = 0; o < static_cast<int>(resolved.graph_outputs.size()); ++o)
      made_[{index, o}] = maker(resolved.graph_outputs[at(o)]);
  }

  std::map<std::pair<int, int>, int> made_;  ///< by layer and output
};

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorKind::usage, message); }

/// Whether all that reads its result, up to the loss, takes each position by itself.
bool ends_by_position(const std::vector<Flat>& operations, const Flat& operation) {
  return std::ranges::all_of(operation.consumers, [&](int consumer) {
    const Flat& reader = operations[at(consumer)];
    if (reader.row == nullptr) return false;
    const TensorSplit way = reader.row->tensor;
    return way == TensorSplit::classes || ((way == TensorSplit::matrix || way == TensorSplit::elements) &&
                                           ends_by_position(operations, reader));
  });
}

/// `option`: what asks for it.
TensorSplit way_of(const std::vector<Flat>& operations, const Flat& operation, int degree,
                   const std::string& option) {
  const TensorSplit way = operation.row == nullptr ? TensorSplit::none : operation.row->tensor;
  const bool biased = way == TensorSplit::attention && operation.input_count > 1;
  const auto dim = operation.attributes->find("dim");
  const bool of_positions = dim != operation.attributes->end() && dim->second == Attribute{std::int64_t{0}};
  // Each member joins the positions that it has.
  const bool joins = of_positions && operation.input_count > 1 && ends_by_position(operations, operation);
  if (way != TensorSplit::none && !biased && (!of_positions || joins)) return way;
  const std::string what = operation.row == nullptr
                               ? "a call of LibTorch"
                               : std::string(operation.row->name) + (biased ? " with a bias of scores" : "");
  refuse("layer " + operation.name + " is " + what + ", which " + std::to_string(degree) +
         " devices cannot divide; use " + option + " 1, or a transformer of linear and attention layers");
}

void require_multiple(const Flat& operation, const std::string& attribute, int degree,
                      const std::string& option = "a tensor degree") {
  const std::int64_t value = std::get<std::int64_t>(operation.attributes->at(attribute));
  if (value % degree == 0) return;
  refuse("layer " + operation.name + " has " + attribute + " " + std::to_string(value) + ", which " +
         std::to_string(degree) + " devices cannot divide; use " + option + " that divides " +
         std::to_string(value));
}

double padded_share(const Flat& operation, const std::string& attribute, int degree) {
  const std::int64_t rows = std::get<std::int64_t>(operation.attributes->at(attribute));
  const std::int64_t multiple = kVocabularyMultiple * degree;
  const std::int64_t padded = (rows + multiple - 1) / multiple * multiple;
  return static_cast<double>(padded) / degree / static_cast<double>(rows);
}

/// Whether what the operation makes may be divided by features, because only those read it that can take it so:
/// the second of two products, heads, a loss. By operation.
std::vector<bool> ends_divided(const std::vector<Flat>& operations, const std::vector<TensorSplit>& ways) {
  std::vector<bool> ends(operations.size(), false);
  const auto takes = [&](int consumer) {
    switch (ways[at(consumer)]) {
      case TensorSplit::matrix: return true;
      case TensorSplit::elements:
      case TensorSplit::heads: return static_cast<bool>(ends[at(consumer)]);
      case TensorSplit::classes: return true;
      default: return false;
    }
  };
  for (std::size_t i = operations.size(); i-- > 0;) {
    const std::vector<int>& consumers = operations[i].consumers;
    ends[i] = !consumers.empty() && std::ranges::all_of(consumers, takes);
  }
  return ends;
}

class Splitter {
 public:
  Splitter(const std::vector<Flat>& operations, int degree) : operations_(operations), degree_(degree) {
    for (const Flat& operation : operations) ways_.push_back(way_of(operations, operation, degree, "--tensor"));
    ends_ = ends_divided(operations, ways_);
    by_features_.assign(operations.size(), false);
  }

  std::vector<OperationSplit> run() {
    std::vector<OperationSplit> splits;
    for (std::size_t i = 0; i < operations_.size(); ++i) splits.push_back(split(i));
    return splits;
  }

 private:
  OperationSplit split(std::size_t index) {
    const Flat& operation = operations_[index];
    const double even = 1.0 / degree_;
    const bool divided = std::ranges::any_of(operation.producers, [&](int p) { return by_features_[at(p)]; });
    const auto divides = [&](MemberPart part, double share) {
      by_features_[index] = part == MemberPart::columns || part == MemberPart::heads;
      return OperationSplit{part, share};
    };
    switch (ways_[index]) {
      case TensorSplit::matrix:
        if (divided) return divides(MemberPart::rows, even);
        if (!ends_[index]) return {};
        if (reaches_loss(index))
          return divides(MemberPart::columns, padded_share(operation, "out_features", degree_));
        require_multiple(operation, "out_features", degree_);
        return divides(MemberPart::columns, even);
      case TensorSplit::heads:
        require_multiple(operation, "num_heads", degree_);
        if (operation.attributes->contains("num_key_value_heads"))
          require_multiple(operation, "num_key_value_heads", degree_);
        return divides(MemberPart::heads, even);
      case TensorSplit::attention:
        require_multiple(operation, "num_heads", degree_);
        return divides(MemberPart::attention, even);
      case TensorSplit::table:
        return divides(MemberPart::table, padded_share(operation, "num_embeddings", degree_));
      case TensorSplit::classes: return {divided ? MemberPart::classes : MemberPart::alike, 1};
      default: by_features_[index] = divided; return {};
    }
  }

  bool reaches_loss(std::size_t index) const {
    const int consumer = operations_[index].consumers.front();
    return ways_[at(consumer)] == TensorSplit::classes ||
           (ways_[at(consumer)] == TensorSplit::elements && reaches_loss(at(consumer)));
  }

  const std::vector<Flat>& operations_;
  int degree_;
  std::vector<TensorSplit> ways_;
  std::vector<bool> ends_, by_features_;
};

void check_context(const ResolvedModel& model, const std::vector<Flat>& operations, int context) {
  for (const Flat& operation : operations) way_of(operations, operation, context, "--context-parallel");
  const std::int64_t tokens = tokens_per_sample(model), slices = 2 * context;
  if (tokens > 0 && tokens % slices == 0) return;
  refuse("samples of " + std::to_string(tokens) + " tokens are not 2 x " + std::to_string(context) +
         " equal slices, two for each of " + std::to_string(context) +
         " devices; use a language model with --context a multiple of " + std::to_string(slices) +
         ", or another --context-parallel");
}

void split_experts(const std::vector<Flat>& operations, int group, int experts,
                   std::vector<OperationSplit>& splits) {
  const std::string option = "--expert-parallel " + std::to_string(experts) + ": ";
  if (experts % group != 0 && group % experts != 0)
    refuse(option + "must be a multiple or a divisor of " + std::to_string(group) +
           ", --tensor times --context-parallel");
  bool any = false;
  for (std::size_t i = 0; i < operations.size(); ++i) {
    const Flat& operation = operations[i];
    if (operation.row == nullptr || operation.row->work.kind != OpWork::Kind::experts) continue;
    require_multiple(operation, "num_experts", experts, "--expert-parallel");
    splits[i] = {MemberPart::experts, 1.0 / experts};
    any = true;
  }
  if (!any) refuse(option + "the model has no mixture_of_experts; leave it out");
}

}  // namespace

std::vector<OperationSplit> split_operations(const ResolvedModel& model, int degree, int context, int experts) {
  const Flattened flat(model);
  if (context > 1) check_context(model, flat.operations, context);
  std::vector<OperationSplit> splits(flat.operations.size());
  if (degree > 1) splits = Splitter(flat.operations, degree).run();
  if (experts > 1) split_experts(flat.operations, degree * context, experts, splits);
  return splits;
}

bool is_of_experts(const ParameterSpec& parameter) { return parameter.name.starts_with("experts."); }

std::vector<double> member_elements(const ResolvedModel& model, int index,
                                    const std::vector<OperationSplit>& splits, std::size_t operation) {
  const ResolvedLayer& layer = model.layers[at(index)];
  std::vector<double> elements;
  for (const ParameterSpec& parameter : layer.parameters)
    elements.push_back(static_cast<double>(element_count(parameter.shape)));
  const auto divide = [&](std::size_t parameter, const OperationSplit& split) {
    if (split.part == MemberPart::alike) return;
    if (split.part == MemberPart::experts && !is_of_experts(layer.parameters[parameter])) return;
    const bool sinks = split.part == MemberPart::heads && layer.parameters[parameter].name.ends_with("sinks");
    if (layer.parameters[parameter].shape.size() < 2 && split.part != MemberPart::columns && !sinks) return;
    elements[parameter] = std::ceil(elements[parameter] * split.share - 1e-6);
  };
  if (layer.nodes.empty()) {
    for (std::size_t p = 0; p < elements.size(); ++p) divide(p, splits[operation]);
    return elements;
  }
  std::vector<bool> done(elements.size(), false);  // nodes may share parameters
  for (std::size_t n = 0; n < layer.nodes.size(); ++n) {
    for (const int p : layer.nodes[n].parameters) {
      if (!done[at(p)]) divide(at(p), splits[operation + n]);
      done[at(p)] = true;
    }
  }
  return elements;
}

}  // namespace pp::profile
