#include "libprofile/core/model/gradients.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <utility>

#include "libprofile/core/index.h"
#include "libprofile/core/model/model_names.h"
#include "libprofile/core/ops/op_table.h"

namespace pp::detail {

namespace {

using Kind = TensorSource::Kind;
using Mask = std::vector<bool>;

bool any(const Mask& mask) { return std::ranges::find(mask, true) != mask.end(); }

/// Operations of LibTorch with floating results that autograd gives no history.
constexpr std::array kWithoutDerivative{"aten::detach",       "aten::detach_copy", "aten::empty_like",
                                        "aten::floor_divide", "aten::full_like",   "aten::new_empty",
                                        "aten::new_full",     "aten::new_ones",    "aten::new_zeros",
                                        "aten::ones_like",    "aten::zeros_like"};

bool has_derivative(const Layer& step) {
  if (!step.call) return true;
  const std::string_view target = step.call->target;
  return std::ranges::find(kWithoutDerivative, target.substr(0, target.find('.'))) == kWithoutDerivative.end();
}

/// A layer, or the loss, with its nodes as they are written.
struct Step {
  const Layer* layer = nullptr;  ///< null: the loss
  const std::vector<Layer>& nodes;
  const ResolvedLayer& resolved;

  bool is_opaque() const { return layer != nullptr && layer->op == kOpaqueOp; }
  bool has_derivative() const { return layer == nullptr || detail::has_derivative(*layer); }
  Mask floating_outputs() const {
    Mask mask;
    for (const TensorType& type : resolved.outputs) mask.push_back(is_floating(type.dtype) || is_opaque());
    return mask;
  }
};

/// Tensors within a graph: the layer's inputs, and the outputs of its nodes.
struct Inside {
  Mask inputs;
  std::vector<Mask> nodes;

  explicit Inside(const ResolvedLayer& resolved) : inputs(resolved.inputs.size(), false) {
    for (const ResolvedNode& node : resolved.nodes) nodes.emplace_back(node.outputs.size(), false);
  }
  Mask::reference operator[](const TensorSource& source) {
    return source.kind == Kind::layer ? nodes[at(source.index)][at(source.output)] : inputs[at(source.index)];
  }
};

/// What the gradients of a layer's outputs reach.
struct Reached {
  Mask inputs, parameters;
};

/// `floating`: per input.
Reached backward_through(const Step& step, const Mask& useful, const Mask& floating) {
  const ResolvedLayer& resolved = step.resolved;
  Reached reached{Mask(resolved.inputs.size(), false), Mask(resolved.parameters.size(), false)};
  if (resolved.nodes.empty()) {
    if (!any(useful) || !step.has_derivative()) return reached;
    return {floating, Mask(resolved.parameters.size(), true)};
  }
  Inside inside(resolved);
  for (std::size_t k = 0; k < useful.size(); ++k) {
    if (useful[k]) inside[resolved.graph_outputs[k]] = true;
  }
  for (std::size_t n = resolved.nodes.size(); n-- > 0;) {
    const ResolvedNode& node = resolved.nodes[n];
    if (!any(inside.nodes[n]) || !has_derivative(step.nodes[n])) continue;
    for (std::size_t k = 0; k < node.sources.size(); ++k) {
      if (is_floating(node.inputs[k].type.dtype)) inside[node.sources[k]] = true;
    }
    for (const int parameter : node.parameters) reached.parameters[at(parameter)] = true;
  }
  reached.inputs = std::move(inside.inputs);
  return reached;
}

/// Per output: it depends on an input of `depends` or on a trained parameter, by a way that a gradient goes.
Mask forward_through(const Step& step, const Mask& depends) {
  const ResolvedLayer& resolved = step.resolved;
  const Mask none(resolved.outputs.size(), false);
  if (step.is_opaque()) return step.floating_outputs();
  if (resolved.nodes.empty()) {
    const bool grows = step.has_derivative() && (any(depends) || any(resolved.trained));
    return grows ? step.floating_outputs() : none;
  }
  Inside inside(resolved);
  inside.inputs = depends;
  for (std::size_t n = 0; n < resolved.nodes.size(); ++n) {
    const ResolvedNode& node = resolved.nodes[n];
    const bool grows =
        has_derivative(step.nodes[n]) &&
        (std::ranges::any_of(node.sources, [&](const TensorSource& source) { return bool(inside[source]); }) ||
         std::ranges::any_of(node.parameters, [&](int p) { return bool(resolved.trained[at(p)]); }));
    for (std::size_t k = 0; grows && k < node.outputs.size(); ++k)
      inside.nodes[n][k] = is_floating(node.outputs[k].type.dtype);
  }
  Mask outputs;
  for (const TensorSource& source : resolved.graph_outputs) outputs.push_back(inside[source]);
  return outputs;
}

class Gradients {
 public:
  Gradients(const ModelGraph& graph, ResolvedModel& model) : graph_(graph), model_(model) {
    for (int layer = 0; layer < count(); ++layer) {
      floating_.push_back(step(layer).floating_outputs());
      useful_.emplace_back(floating_.back().size(), false);
      resolved(layer).trained.assign(resolved(layer).parameters.size(), false);
    }
    reached_.resize(at(count() + 1));
  }

  void run() {
    if (graph_.loss) {
      visit(count(), {true});
    } else {
      mark(model_.outputs, Mask(model_.outputs.size(), true));
    }
    for (int layer = count(); layer-- > 0;) visit(layer, useful_[at(layer)]);
    for (int layer = 0; layer < count(); ++layer) {
      const int owner = resolved(layer).weights_layer;
      if (owner != layer) resolved(layer).trained = resolved(owner).trained;
    }
    for (int layer = 0; layer < count(); ++layer) complete(layer);
    if (graph_.loss) complete(count());
  }

 private:
  int count() const { return static_cast<int>(model_.layers.size()); }
  /// The loss stands behind the last layer.
  ResolvedLayer& resolved(int layer) { return layer == count() ? model_.loss : model_.layers[at(layer)]; }
  Step step(int layer) {
    if (layer == count()) return {nullptr, graph_.loss->nodes, model_.loss};
    return {&graph_.layers[at(layer)], graph_.layers[at(layer)].nodes, model_.layers[at(layer)]};
  }
  bool is_floating_source(const TensorSource& source) const {
    return source.kind == Kind::layer && floating_[at(source.index)][at(source.output)];
  }

  void mark(const std::vector<TensorSource>& sources, const Mask& which) {
    for (std::size_t k = 0; k < sources.size(); ++k) {
      if (which[k] && is_floating_source(sources[k]))
        useful_[at(sources[k].index)][at(sources[k].output)] = true;
    }
  }

  /// From the last layer to the first: what its useful outputs make useful, and train.
  void visit(int layer, const Mask& useful) {
    const ResolvedLayer& one = resolved(layer);
    Mask floating;
    for (const TensorSource& source : one.sources) floating.push_back(is_floating_source(source));
    Reached& reached = reached_[at(layer)] = backward_through(step(layer), useful, floating);
    mark(one.sources, reached.inputs);
    if (layer == count()) return;
    ResolvedLayer& owner = resolved(one.weights_layer);
    for (std::size_t i = 0; i < reached.parameters.size(); ++i) {
      if (reached.parameters[i] && !one.frozen[i]) owner.trained[i] = true;
    }
  }

  /// From the first to the last: where what is trained stands upstream.
  void complete(int layer) {
    ResolvedLayer& one = resolved(layer);
    Mask depends;
    for (const TensorSource& source : one.sources)
      depends.push_back(source.kind == Kind::layer && depends_[at(source.index)][at(source.output)]);
    const Reached& reached = reached_[at(layer)];
    for (std::size_t k = 0; k < depends.size(); ++k)
      one.input_gradient.push_back(depends[k] && reached.inputs[k]);
    one.backward = any(one.input_gradient);
    for (std::size_t i = 0; i < reached.parameters.size(); ++i)
      one.backward = one.backward || (reached.parameters[i] && one.trained[i]);
    depends_.push_back(forward_through(step(layer), depends));
  }

  const ModelGraph& graph_;
  ResolvedModel& model_;
  std::vector<Mask> floating_, useful_, depends_;  // per layer and output
  std::vector<Reached> reached_;                   // per layer; the last is the loss
};

}  // namespace

void derive_gradients(const ModelGraph& graph, ResolvedModel& model) { Gradients(graph, model).run(); }

namespace {

using Names = std::vector<std::string>;

/// The names of a node's parameters as the node has them, in order.
Names local_names(const Layer& node, const ResolvedNode& resolved, const ResolvedLayer& layer) {
  const std::string scope = node.scope.value_or(node.name);
  const std::size_t skipped = scope.empty() ? 0 : scope.size() + 1;
  Names names;
  for (const int index : resolved.parameters)
    names.push_back(layer.parameters[static_cast<std::size_t>(index)].name.substr(skipped));
  return names;
}

std::string list_of(const Names& names) {
  std::string text;
  for (const std::string& name : names) text.append(text.empty() ? "" : ", ").append(name);
  return text;
}

/// Per parameter of `known`: the words name it.
std::vector<bool> named(const Frozen& words, const Names& known, const std::string& pointer) {
  if (!words.none() && known.empty())
    fail_at(pointer, "there are no parameters to freeze here; remove this key");
  if (words.all) return std::vector<bool>(known.size(), true);
  std::vector<bool> frozen(known.size(), false);
  std::map<std::string_view, std::size_t> places;
  for (std::size_t i = 0; i < known.size(); ++i) places.emplace(known[i], i);
  for (std::size_t k = 0; k < words.names.size(); ++k) {
    const std::string place = append_pointer(pointer, std::to_string(k));
    const auto found = places.find(words.names[k]);
    if (found == places.end())
      fail_at(place, in_quotes(words.names[k]) + " is no parameter here; use names of " + list_of(known));
    if (frozen[found->second]) fail_at(place, in_quotes(words.names[k]) + " stands here twice");
    frozen[found->second] = true;
  }
  return frozen;
}

/// `own`: per parameter of `names`, whether it is to be named.
Frozen shortest(const Names& names, const std::vector<bool>& own) {
  Frozen words;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (own[i]) words.names.push_back(names[i]);
  }
  if (!names.empty() && words.names.size() == names.size()) words = {.all = true};
  return words;
}

void freeze_nodes(FrozenWords words, const std::string& pointer, ResolvedLayer& resolved) {
  std::vector<std::size_t> owners(resolved.parameters.size(), words.nodes.size());
  for (std::size_t n = 0; n < words.nodes.size(); ++n) {
    const std::string place = append_pointer(pointer + "/nodes", std::to_string(n)) + "/frozen";
    const ResolvedNode& node = resolved.nodes[n];
    const Names names = local_names(words.nodes[n], node, resolved);
    const std::vector<bool> mine = named(words.nodes[n].frozen, names, place);
    for (std::size_t i = 0; i < names.size(); ++i) {
      const auto parameter = static_cast<std::size_t>(node.parameters[i]);
      if (owners[parameter] == words.nodes.size()) owners[parameter] = n;
      if (!mine[i] || resolved.frozen[parameter]) continue;
      if (owners[parameter] != n) {
        fail_at(place, in_quotes(names[i]) + " belongs to node " +
                           in_quotes(words.nodes[owners[parameter]].name) +
                           ", which trains it; freeze it there, or nowhere");
      }
      resolved.frozen[parameter] = true;
    }
  }
  const bool all = !resolved.frozen.empty() && std::ranges::count(resolved.frozen, false) == 0;
  words.layer = {.all = all};
  for (std::size_t n = 0; n < words.nodes.size(); ++n) {
    Names names;
    std::vector<bool> own;
    const Names locals = local_names(words.nodes[n], resolved.nodes[n], resolved);
    for (std::size_t i = 0; i < locals.size(); ++i) {
      const auto parameter = static_cast<std::size_t>(resolved.nodes[n].parameters[i]);
      if (owners[parameter] != n) continue;
      names.push_back(locals[i]);
      own.push_back(resolved.frozen[parameter]);
    }
    words.nodes[n].frozen = all ? Frozen{} : shortest(names, own);
  }
}

}  // namespace

void resolve_frozen(FrozenWords words, const std::string& pointer, ResolvedLayer& resolved) {
  Names names;
  for (const ParameterSpec& parameter : resolved.parameters) names.push_back(parameter.name);
  resolved.frozen = named(words.layer, names, pointer + "/frozen");
  words.layer = shortest(names, resolved.frozen);
  if (!words.nodes.empty()) freeze_nodes(words, pointer, resolved);
}

void follow_owner(FrozenWords words, const std::string& owner, const std::vector<bool>& owners,
                  const std::string& pointer, ResolvedLayer& resolved) {
  for (std::size_t i = 0; i < owners.size(); ++i) {
    if (!resolved.frozen[i] || owners[i]) continue;
    fail_at(pointer + "/frozen", in_quotes(resolved.parameters[i].name) + " belongs to layer " +
                                     in_quotes(owner) + ", which trains it; freeze it there, or nowhere");
  }
  resolved.frozen = owners;
  words.layer = {};
  for (Layer& node : words.nodes) node.frozen = {};
}

}  // namespace pp::detail
