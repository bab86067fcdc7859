// Checks a model graph and derives sources, shapes, parameters and consumers: resolve().
#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <utility>

#include "libprofile/core/model_graph.h"
#include "libprofile/core/op_table.h"

namespace pp {
namespace {

/// Sizes above this are refused, so that no product of sizes overflows.
constexpr std::int64_t kMaxElements = std::int64_t{1} << 40;

std::string in_quotes(std::string_view name) { return "\"" + std::string(name) + "\""; }

/// `layer:1` -> layer, 1. Names hold no colon.
std::pair<std::string_view, std::string_view> split_reference(std::string_view reference) {
  const std::size_t colon = reference.find(':');
  if (colon == std::string_view::npos) return {reference, {}};
  return {reference.substr(0, colon), reference.substr(colon + 1)};
}

bool is_name(std::string_view name) {
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-/";
  return !name.empty() && name.find_first_not_of(kAllowed) == std::string_view::npos;
}

bool too_large(const Shape& shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) {
    if (size > kMaxElements / count) return true;
    count *= std::max<std::int64_t>(size, 1);
  }
  return false;
}

class Resolver {
 public:
  Resolver(ModelGraph graph, std::string_view pointer) : pointer_(pointer) { model_.graph = std::move(graph); }

  ResolvedModel run() {
    check_names();
    model_.layers.resize(graph().layers.size());
    for (std::size_t i = 0; i < graph().layers.size(); ++i) resolve_layer(i);
    resolve_outputs();
    if (graph().loss) resolve_loss(*graph().loss);
    refuse_dead_layers();
    refuse_equal_parameters();
    return std::move(model_);
  }

 private:
  ModelGraph& graph() { return model_.graph; }
  std::string at(std::string_view list) const { return append_pointer(pointer_, list); }
  std::string at(std::string_view list, std::size_t i) const {
    return append_pointer(at(list), std::to_string(i));
  }
  [[noreturn]] static void fail(const std::string& pointer, const std::string& message) {
    throw Error(ErrorKind::data, pointer + ": " + message);
  }

  // --- names

  void check_names() {
    if (graph().layers.empty()) fail(at("layers"), "is empty; a model needs at least one layer");
    for (std::size_t i = 0; i < graph().inputs.size(); ++i)
      declare_tensor("inputs", i, TensorSource::Kind::input, graph().inputs[i]);
    for (std::size_t i = 0; i < graph().targets.size(); ++i)
      declare_tensor("targets", i, TensorSource::Kind::target, graph().targets[i]);
    for (std::size_t i = 0; i < graph().layers.size(); ++i) {
      declare(graph().layers[i].name, {TensorSource::Kind::layer, static_cast<int>(i), 0}, at("layers", i));
    }
  }

  void declare_tensor(std::string_view list, std::size_t i, TensorSource::Kind kind, const DataTensor& tensor) {
    declare(tensor.name, {kind, static_cast<int>(i), 0}, at(list, i));
    for (std::size_t d = 0; d < tensor.type.shape.size(); ++d) {
      if (tensor.type.shape[d] < 1) {
        fail(append_pointer(at(list, i) + "/shape", std::to_string(d)),
             "must be an integer from 1 upwards, not " + std::to_string(tensor.type.shape[d]));
      }
    }
    if (too_large(tensor.type.shape))
      fail(at(list, i) + "/shape", "has more than 2^40 elements; use smaller sizes");
  }

  void declare(const std::string& name, TensorSource source, const std::string& pointer) {
    if (!is_name(name))
      fail(pointer + "/name", in_quotes(name) + " is not a name; use letters, digits and _ . - /");
    const auto [known, added] = names_.emplace(name, std::pair{source, pointer});
    if (!added)
      fail(pointer + "/name", "duplicate name " + in_quotes(name) + ", already at " + known->second.second +
                                  "; rename one of them");
  }

  // --- references

  /// The source and type that `reference` names; layers from `reader` on are not computed yet.
  std::pair<TensorSource, TensorType> look_up(const std::string& reference, std::size_t reader,
                                              const std::string& pointer) {
    const auto [name, suffix] = split_reference(reference);
    const auto known = names_.find(name);
    if (known == names_.end()) {
      fail(pointer,
           "unknown name " + in_quotes(reference) + "; use an earlier layer" +
               (graph().inputs.empty() ? "" : " or an input, such as " + in_quotes(graph().inputs[0].name)));
    }
    TensorSource source = known->second.first;
    if (source.kind == TensorSource::Kind::layer && static_cast<std::size_t>(source.index) >= reader) {
      refuse_order(static_cast<std::size_t>(source.index), reader, pointer);
    }
    if (source.kind != TensorSource::Kind::layer) {
      if (reference.size() != name.size())
        fail(pointer, in_quotes(name) + " has one tensor only; write it without " +
                          in_quotes(":" + std::string(suffix)));
      const auto& list = source.kind == TensorSource::Kind::input ? graph().inputs : graph().targets;
      return {source, list[static_cast<std::size_t>(source.index)].type};
    }
    const std::vector<TensorType>& outputs = model_.layers[static_cast<std::size_t>(source.index)].outputs;
    if (reference.size() != name.size()) source.output = output_number(suffix, outputs.size(), name, pointer);
    return {source, outputs[static_cast<std::size_t>(source.output)]};
  }

  static int output_number(std::string_view text, std::size_t count, std::string_view name,
                           const std::string& pointer) {
    int number = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    const bool valid = error == std::errc{} && end == text.data() + text.size() && number >= 0 &&
                       static_cast<std::size_t>(number) < count;
    if (!valid)
      fail(pointer, in_quotes(name) + " has no output " + in_quotes(text) + "; its outputs are 0 to " +
                        std::to_string(count - 1));
    return number;
  }

  /// A layer reads one that stands later (or itself): an order to repair, or a cycle.
  [[noreturn]] void refuse_order(std::size_t source, std::size_t reader, const std::string& pointer) {
    const auto& layers = graph().layers;
    std::vector<std::size_t> path = path_back(source, reader);
    if (path.empty()) {
      fail(pointer, in_quotes(layers[source].name) + " stands later in the file, at " + at("layers", source) +
                        "; move it before " + in_quotes(layers[reader].name));
    }
    std::string cycle = layers[reader].name;
    for (const std::size_t layer : path) cycle += " <- " + layers[layer].name;
    fail(pointer, "cycle " + cycle + " (each reads the one after the arrow); remove one of these inputs");
  }

  /// Layers from `from` along inputs to `to`, both included; empty when `from` does not depend on `to`.
  std::vector<std::size_t> path_back(std::size_t from, std::size_t to) {
    std::map<std::size_t, std::size_t> reached_from{{from, from}};
    std::vector<std::size_t> open{from};
    while (!open.empty() && !reached_from.contains(to)) {
      const std::size_t layer = open.back();
      open.pop_back();
      for (const std::string& input : graph().layers[layer].inputs) {
        const auto known = names_.find(split_reference(input).first);
        if (known == names_.end() || known->second.first.kind != TensorSource::Kind::layer) continue;
        const auto next = static_cast<std::size_t>(known->second.first.index);
        if (reached_from.emplace(next, layer).second) open.push_back(next);
      }
    }
    std::vector<std::size_t> path;
    if (!reached_from.contains(to)) return path;
    for (std::size_t layer = to; layer != from; layer = reached_from.at(layer)) path.push_back(layer);
    path.push_back(from);
    std::reverse(path.begin(), path.end());
    return path;
  }

  // --- layers

  void resolve_layer(std::size_t i) {
    Layer& layer = graph().layers[i];
    ResolvedLayer& resolved = model_.layers[i];
    const std::string pointer = at("layers", i);
    const OpRow* row = find_op(layer.op);
    if (row == nullptr)
      fail(pointer + "/op",
           "unknown operation " + in_quotes(layer.op) + "; use one of " + op_names(op_table()));
    layer.attributes = complete_attributes(*row, layer.attributes, pointer + "/attributes");
    check_input_count(*row, layer.inputs.size(), pointer + "/inputs");
    for (std::size_t k = 0; k < layer.inputs.size(); ++k) {
      const auto [source, type] =
          look_up(layer.inputs[k], i, append_pointer(pointer + "/inputs", std::to_string(k)));
      resolved.sources.push_back(source);
      resolved.inputs.push_back(type);
      if (source.kind == TensorSource::Kind::layer) note_consumer(source.index, static_cast<int>(i));
    }
    OpResult result = infer(*row, layer.attributes, resolved.inputs, pointer, layer.name);
    resolved.outputs = std::move(result.outputs);
    resolved.parameters = std::move(result.parameters);
    resolved.buffers = std::move(result.buffers);
    resolved.forward_flops = result.forward_flops;
    resolved.weights_layer =
        layer.weights_of.empty() ? static_cast<int>(i) : shared_weights(layer, i, pointer + "/weights_of");
  }

  static std::string op_names(const std::vector<OpRow>& table) {
    std::string names;
    for (const OpRow& row : table) names.append(names.empty() ? "" : ", ").append(row.name);
    return names;
  }

  static void check_input_count(const OpRow& row, std::size_t count, const std::string& pointer) {
    const auto n = static_cast<std::int64_t>(count);
    if (n >= row.min_inputs && n <= row.max_inputs) return;
    std::string needed = std::to_string(row.min_inputs);
    if (row.max_inputs > row.min_inputs) needed = "at least " + needed;
    fail(pointer, "has " + std::to_string(n) + (n == 1 ? " entry" : " entries") + "; " + std::string(row.name) +
                      " needs " + needed);
  }

  void note_consumer(int producer, int consumer) {
    std::vector<int>& consumers = model_.layers[static_cast<std::size_t>(producer)].consumers;
    if (consumers.empty() || consumers.back() != consumer) consumers.push_back(consumer);
  }

  static OpResult infer(const OpRow& row, const Attributes& attributes, std::span<const TensorType> inputs,
                        const std::string& pointer, const std::string& label) {
    const std::string context =
        pointer + ": " + std::string(row.name) + (label.empty() ? "" : " " + in_quotes(label));
    OpResult result = with_context(context, [&] { return row.infer(attributes, inputs); });
    for (const TensorType& output : result.outputs) {
      if (too_large(output.shape))
        fail(context, "output " + to_text(output.shape) + " has more than 2^40 elements; use smaller sizes");
    }
    for (const ParameterSpec& parameter : result.parameters) {
      if (too_large(parameter.shape))
        fail(context, parameter.name + " " + to_text(parameter.shape) +
                          " has more than 2^40 elements; use smaller sizes");
    }
    return result;
  }

  int shared_weights(const Layer& layer, std::size_t i, const std::string& pointer) {
    const auto known = names_.find(layer.weights_of);
    if (known == names_.end() || known->second.first.kind != TensorSource::Kind::layer ||
        static_cast<std::size_t>(known->second.first.index) >= i) {
      fail(pointer, in_quotes(layer.weights_of) + " is no earlier layer; name one that stands before " +
                        in_quotes(layer.name));
    }
    const auto owner = static_cast<std::size_t>(known->second.first.index);
    const auto describe = [](const std::vector<ParameterSpec>& parameters) {
      std::string text;
      for (const ParameterSpec& p : parameters)
        text += (text.empty() ? "" : ", ") + p.name + " " + to_text(p.shape);
      return text.empty() ? "no parameters" : text;
    };
    if (model_.layers[owner].parameters != model_.layers[i].parameters || model_.layers[i].parameters.empty()) {
      fail(pointer, in_quotes(layer.weights_of) + " has " + describe(model_.layers[owner].parameters) +
                        ", but " + in_quotes(layer.name) + " needs " + describe(model_.layers[i].parameters) +
                        "; share only equal parameters");
    }
    return model_.layers[owner].weights_layer;
  }

  // --- the model as a whole

  void resolve_outputs() {
    const std::string pointer = at("outputs");
    if (graph().outputs.empty()) fail(pointer, "is empty; name the layer whose output is the result");
    for (std::size_t i = 0; i < graph().outputs.size(); ++i) {
      model_.outputs.push_back(
          layer_output(graph().outputs[i], append_pointer(pointer, std::to_string(i))).first);
    }
  }

  std::pair<TensorSource, TensorType> layer_output(const std::string& reference, const std::string& pointer) {
    auto found = look_up(reference, graph().layers.size(), pointer);
    if (found.first.kind != TensorSource::Kind::layer)
      fail(pointer, in_quotes(reference) + " is no layer; name the output of a layer");
    return found;
  }

  void resolve_loss(LossSpec& loss) {
    const std::string pointer = at("loss");
    const OpRow* row = find_loss(loss.op);
    if (row == nullptr)
      fail(pointer + "/op", "unknown loss " + in_quotes(loss.op) + "; use one of " + op_names(loss_table()));
    loss.attributes = complete_attributes(*row, loss.attributes, pointer + "/attributes");
    check_input_count(*row, loss.inputs.size(), pointer + "/inputs");
    std::vector<TensorType> types;
    for (std::size_t k = 0; k < loss.inputs.size(); ++k) {
      const std::string place = append_pointer(pointer + "/inputs", std::to_string(k));
      const auto [source, type] =
          k == 0 ? layer_output(loss.inputs[k], place) : look_up(loss.inputs[k], graph().layers.size(), place);
      model_.loss_sources.push_back(source);
      types.push_back(type);
    }
    infer(*row, loss.attributes, types, pointer, "");
  }

  void refuse_dead_layers() {
    std::vector<bool> used(graph().layers.size(), false);
    const auto use = [&](const TensorSource& source) {
      if (source.kind == TensorSource::Kind::layer) used[static_cast<std::size_t>(source.index)] = true;
    };
    for (const TensorSource& source : model_.outputs) use(source);
    for (const TensorSource& source : model_.loss_sources) use(source);
    for (std::size_t i = used.size(); i-- > 0;) {
      if (!used[i]) {
        fail(at("layers", i), "nothing uses the output of " + in_quotes(graph().layers[i].name) +
                                  "; remove the layer, or add it to outputs");
      }
      for (const TensorSource& source : model_.layers[i].sources) use(source);
    }
  }

  /// Layer `a` with parameter `b.weight` and layer `a.b` with `weight` would write the same key of a
  /// checkpoint.
  void refuse_equal_parameters() {
    std::map<std::string, std::size_t> owners;
    for (std::size_t i = 0; i < model_.layers.size(); ++i) {
      const auto claim = [&](const ParameterSpec& parameter) {
        const std::string name = graph().layers[i].name + "." + parameter.name;
        const auto [owner, added] = owners.emplace(name, i);
        if (!added) {
          fail(at("layers", i) + "/name", "parameter " + in_quotes(name) + " belongs to layer " +
                                              in_quotes(graph().layers[owner->second].name) +
                                              " already; rename one of the two layers");
        }
      };
      if (model_.layers[i].weights_layer == static_cast<int>(i))
        std::for_each(model_.layers[i].parameters.begin(), model_.layers[i].parameters.end(), claim);
      std::for_each(model_.layers[i].buffers.begin(), model_.layers[i].buffers.end(), claim);
    }
  }

  std::string pointer_;
  ResolvedModel model_;
  /// Every name with its source and the pointer of its declaration.
  std::map<std::string, std::pair<TensorSource, std::string>, std::less<>> names_;
};

}  // namespace

ResolvedModel resolve(ModelGraph graph, std::string_view pointer) {
  return Resolver(std::move(graph), pointer).run();
}

}  // namespace pp
