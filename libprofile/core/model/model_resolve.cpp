// Checks a model graph and derives sources, shapes, parameters and consumers: resolve().
#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "libprofile/core/model/gradients.h"
#include "libprofile/core/model/layer_resolve.h"
#include "libprofile/core/model/model_graph.h"
#include "libprofile/core/model/model_names.h"
#include "libprofile/core/ops/op_table.h"

namespace pp {
namespace {

using detail::fail_at;
using detail::in_quotes;
using detail::NameTable;

std::string parameters_text(const std::vector<ParameterSpec>& parameters) {
  std::string text;
  for (const ParameterSpec& p : parameters)
    text.append(text.empty() ? "" : ", ").append(p.name).append(" ").append(to_text(p.shape));
  return text.empty() ? "no parameters" : text;
}

class Resolver {
 public:
  Resolver(ModelGraph& graph, std::string_view pointer)
      : graph_(graph), pointer_(pointer), names_(graph, pointer_) {}

  ResolvedModel run() {
    if (graph_.layers.empty()) fail_at(at("layers"), "is empty; a model needs at least one layer");
    model_.layers.resize(graph_.layers.size());
    for (std::size_t i = 0; i < graph_.layers.size(); ++i) resolve_layer(i);
    resolve_outputs();
    if (graph_.loss) resolve_loss(*graph_.loss);
    refuse_dead_layers();
    refuse_equal_parameters();
    detail::derive_gradients(graph_, model_);
    return std::move(model_);
  }

 private:
  std::string at(std::string_view key) const { return append_pointer(pointer_, key); }
  std::string at(std::string_view key, std::size_t i) const {
    return append_pointer(at(key), std::to_string(i));
  }

  std::pair<TensorSource, TensorType> look_up(const std::string& reference, std::size_t reader,
                                              const std::string& pointer) const {
    TensorSource source = names_.source(reference, reader, pointer);
    const auto index = static_cast<std::size_t>(source.index);
    if (source.kind == TensorSource::Kind::layer) {
      const std::vector<TensorType>& outputs = model_.layers[index].outputs;
      source.output = NameTable::output_number(reference, outputs.size(), pointer);
      return {source, outputs[static_cast<std::size_t>(source.output)]};
    }
    NameTable::output_number(reference, 1, pointer);
    return {source, (source.kind == TensorSource::Kind::input ? graph_.inputs : graph_.targets)[index].type};
  }

  void resolve_layer(std::size_t i) {
    Layer& layer = graph_.layers[i];
    ResolvedLayer& resolved = model_.layers[i];
    const std::string pointer = at("layers", i);
    detail::check_scope(layer, pointer);
    for (std::size_t k = 0; k < layer.inputs.size(); ++k) {
      const auto [source, type] =
          look_up(layer.inputs[k], i, append_pointer(pointer + "/inputs", std::to_string(k)));
      resolved.sources.push_back(source);
      resolved.inputs.push_back(type);
      if (source.kind == TensorSource::Kind::layer) note_consumer(source.index, static_cast<int>(i));
    }
    if (layer.op == kGraphOp) {
      detail::resolve_graph({layer.nodes, layer.inputs, layer.outputs}, 1, pointer, resolved);
    } else {
      take_operation(layer, pointer, resolved);
    }
    if ((layer.op == kGraphOp || layer.op == kAtenOp) && layer.inputs.empty())
      fail_at(pointer + "/inputs", "is empty; " + layer.op + " needs at least one");
    resolved.weights_layer =
        layer.weights_of.empty() ? static_cast<int>(i) : shared_weights(i, pointer + "/weights_of");
    detail::resolve_frozen({layer.frozen, layer.nodes}, pointer, resolved);
    if (layer.weights_of.empty()) return;
    const auto owner = static_cast<std::size_t>(resolved.weights_layer);
    detail::follow_owner({layer.frozen, layer.nodes}, graph_.layers[owner].name, model_.layers[owner].frozen,
                         pointer, resolved);
  }

  static void take_operation(Layer& layer, const std::string& pointer, ResolvedLayer& resolved) {
    std::vector<RowTensor> inputs;
    for (const TensorType& type : resolved.inputs) inputs.push_back({type, 1});
    detail::OperationResult result = detail::resolve_operation(layer, inputs, pointer);
    for (std::size_t k = 0; k < result.outputs.size(); ++k) {
      if (result.outputs[k].rows != 1) {
        fail_at(append_pointer(pointer + "/call/outputs", std::to_string(k)) + "/rows",
                "must be 1, a layer's outputs have one row a sample; put a view behind it, in a graph");
      }
      if (result.outputs[k].batch_dim != 0) {
        fail_at(append_pointer(pointer + "/call/outputs", std::to_string(k)) + "/batch_dim",
                "must be 0, a layer's outputs have the batch in front; put a transpose behind it, in a graph");
      }
      resolved.outputs.push_back(std::move(result.outputs[k].type));
    }
    resolved.parameters = std::move(result.parameters);
    resolved.buffers = std::move(result.buffers);
    resolved.forward_flops = result.forward_flops;
  }

  void note_consumer(int producer, int consumer) {
    std::vector<int>& consumers = model_.layers[static_cast<std::size_t>(producer)].consumers;
    if (consumers.empty() || consumers.back() != consumer) consumers.push_back(consumer);
  }

  /// The layer that owns the parameters that layer i asks for.
  int shared_weights(std::size_t i, const std::string& pointer) const {
    const Layer& layer = graph_.layers[i];
    const int other = names_.earlier_layer(layer.weights_of, i);
    if (other < 0) {
      fail_at(pointer, in_quotes(layer.weights_of) + " is no earlier layer; name one that stands before " +
                           in_quotes(layer.name));
    }
    const ResolvedLayer& owner = model_.layers[static_cast<std::size_t>(other)];
    const std::vector<ParameterSpec>& needed = model_.layers[i].parameters;
    if (needed.empty())
      fail_at(pointer, layer.op + " " + in_quotes(layer.name) + " has no parameters to share; remove this key");
    if (owner.parameters != needed) {
      fail_at(pointer, in_quotes(layer.weights_of) + " has " + parameters_text(owner.parameters) + ", but " +
                           in_quotes(layer.name) + " needs " + parameters_text(needed) +
                           "; share equal parameters only");
    }
    return owner.weights_layer;
  }

  void resolve_outputs() {
    if (graph_.outputs.empty()) fail_at(at("outputs"), "is empty; name the layer whose output is the result");
    for (std::size_t i = 0; i < graph_.outputs.size(); ++i) {
      model_.outputs.push_back(layer_output(graph_.outputs[i], at("outputs", i)).first);
    }
  }

  std::pair<TensorSource, TensorType> layer_output(const std::string& reference,
                                                   const std::string& pointer) const {
    auto found = look_up(reference, graph_.layers.size(), pointer);
    if (found.first.kind != TensorSource::Kind::layer) {
      fail_at(pointer, in_quotes(reference) + " is no layer; name the output of a layer");
    }
    return found;
  }

  void resolve_loss(LossSpec& loss) {
    const std::string pointer = at("loss");
    const bool graph = loss.op == kGraphOp;
    const OpRow* row = find_loss(loss.op);
    if (row == nullptr && !graph) {
      fail_at(pointer + "/op", "unknown loss " + in_quotes(loss.op) + "; use one of " +
                                   detail::op_names(loss_table()) + ", " + std::string(kGraphOp));
    }
    if (row != nullptr) {
      loss.attributes = complete_attributes(*row, loss.attributes, pointer + "/attributes");
      detail::check_input_count(*row, loss.inputs.size(), pointer + "/inputs");
    }
    ResolvedLayer& resolved = model_.loss;
    for (std::size_t k = 0; k < loss.inputs.size(); ++k) {
      const std::string place = append_pointer(pointer + "/inputs", std::to_string(k));
      const auto [source, type] = k == 0 && !graph ? layer_output(loss.inputs[k], place)
                                                   : look_up(loss.inputs[k], graph_.layers.size(), place);
      resolved.sources.push_back(source);
      resolved.inputs.push_back(type);
    }
    model_.loss_sources = resolved.sources;
    if (graph) {
      resolve_loss_graph(loss, pointer);
    } else {
      OpResult result = detail::infer(*row, loss.attributes, resolved.inputs, pointer + ": " + loss.op);
      resolved.outputs = std::move(result.outputs);
      resolved.forward_flops = result.forward_flops;
    }
  }

  void resolve_loss_graph(LossSpec& loss, const std::string& pointer) {
    ResolvedLayer& resolved = model_.loss;
    const auto is_layer = [](const TensorSource& source) { return source.kind == TensorSource::Kind::layer; };
    if (std::ranges::none_of(resolved.sources, is_layer))
      fail_at(pointer + "/inputs", "names no layer; a loss reads what the model computes");
    detail::resolve_graph({loss.nodes, loss.inputs, loss.outputs}, 0, pointer, resolved);
    if (resolved.outputs.size() != 1 || !resolved.outputs[0].shape.empty() ||
        !is_floating(resolved.outputs[0].dtype))
      fail_at(pointer + "/outputs", "a loss is one floating number");
    if (!resolved.parameters.empty())
      fail_at(pointer + "/nodes", "a loss has no parameters; give them a layer");
    if (!resolved.buffers.empty()) fail_at(pointer + "/nodes", "a loss has no buffers; make them constants");
    Frozen none;
    detail::resolve_frozen({none, loss.nodes}, pointer, resolved);
  }

  void refuse_dead_layers() const {
    std::vector<bool> used(graph_.layers.size(), false);
    const auto use = [&](const TensorSource& source) {
      if (source.kind == TensorSource::Kind::layer) used[static_cast<std::size_t>(source.index)] = true;
    };
    std::for_each(model_.outputs.begin(), model_.outputs.end(), use);
    std::for_each(model_.loss_sources.begin(), model_.loss_sources.end(), use);
    for (std::size_t i = used.size(); i-- > 0;) {
      if (!used[i]) {
        fail_at(at("layers", i), "nothing uses the output of " + in_quotes(graph_.layers[i].name) +
                                     "; remove the layer, or add it to " + at("outputs"));
      }
      std::for_each(model_.layers[i].sources.begin(), model_.layers[i].sources.end(), use);
    }
  }

  /// Layer `a` with parameter `b.weight` and layer `a.b` with `weight` would have the same key in a checkpoint.
  void refuse_equal_parameters() const {
    std::map<std::string, std::size_t> owners;
    for (std::size_t i = 0; i < model_.layers.size(); ++i) {
      std::vector<ParameterSpec> own = model_.layers[i].buffers;
      if (model_.layers[i].weights_layer == static_cast<int>(i)) {
        own.insert(own.end(), model_.layers[i].parameters.begin(), model_.layers[i].parameters.end());
      }
      for (const ParameterSpec& parameter : own) {
        const std::string name = detail::scoped_name(graph_.layers[i], parameter.name);
        const auto [owner, added] = owners.emplace(name, i);
        if (added) continue;
        fail_at(at("layers", i) + "/name", "parameter " + in_quotes(name) + " belongs to layer " +
                                               in_quotes(graph_.layers[owner->second].name) +
                                               " already; rename one of the two layers");
      }
    }
  }

  ModelGraph& graph_;
  std::string pointer_;
  NameTable names_;
  ResolvedModel model_;  // its graph is filled in by resolve()
};

}  // namespace

ResolvedModel resolve(ModelGraph graph, std::string_view pointer) {
  constexpr std::size_t kMostLayers = 65536;
  if (graph.layers.size() > kMostLayers) {
    detail::fail_at(append_pointer(pointer, "layers"), "has " + std::to_string(graph.layers.size()) +
                                                           " entries, at most " + std::to_string(kMostLayers) +
                                                           " are planned; join small layers in graphs");
  }
  ResolvedModel model = Resolver(graph, pointer).run();
  model.graph = std::move(graph);
  return model;
}

}  // namespace pp
