#include "libprofile/estimate/layer_work.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "libprofile/core/error.h"
#include "libprofile/core/index.h"
#include "libprofile/core/ops/op_table.h"

namespace pp::profile {
namespace {

/// Who made a tensor: layer, node of its graph (-1: none) and output; data of the model has negative layers.
using Maker = std::tuple<int, int, int>;

struct Tensor {
  Maker maker{};
  TensorType type;       ///< per row
  double rows = 1;       ///< in the whole micro-batch
  bool trained = false;  ///< has a gradient
};

/// An operation in a layer, a node of a graph, or a loss.
struct Operation {
  const OpRow* row = nullptr;  ///< null: a call of LibTorch
  const Attributes& attributes;
  std::vector<Tensor> inputs, outputs;
  double flops = 0;    ///< forward, of the micro-batch
  double weights = 0;  ///< elements
  double trained = 0;  ///< those of them that get a gradient
};

class Accountant {
 public:
  Accountant(const ResolvedModel& model, DType dtype, std::int64_t size)
      : model_(model), dtype_(dtype), size_(static_cast<double>(size)) {}

  std::vector<LayerWork> run() {
    std::vector<LayerWork> works;
    for (int l = 0; l < model_.layer_count(); ++l)
      works.push_back(layer(model_.graph.layers[at(l)], model_.layers[at(l)], l));
    if (model_.graph.loss) works.push_back(loss());
    return works;
  }

 private:
  double bytes(const Tensor& tensor) const {
    const DType dtype = is_floating(tensor.type.dtype) ? dtype_ : tensor.type.dtype;
    return tensor.rows * static_cast<double>(element_count(tensor.type.shape) * size_of(dtype));
  }
  double bytes(const std::vector<Tensor>& tensors) const {
    double sum = 0;
    for (const Tensor& tensor : tensors) sum += bytes(tensor);
    return sum;
  }
  double gradients(const std::vector<Tensor>& tensors) const {
    double sum = 0;
    for (const Tensor& tensor : tensors) sum += tensor.trained ? bytes(tensor) : 0;
    return sum;
  }

  Tensor made(int layer, int node, int output, const RowTensor& type) const {
    const double rows = type.rows == 0 ? 1 : static_cast<double>(type.rows) * size_;
    return {{layer, node, output}, type.type, rows};
  }

  LayerWork layer(const Layer& layer, const ResolvedLayer& resolved, int index) {
    std::vector<Tensor> inputs;
    for (std::size_t i = 0; i < resolved.sources.size(); ++i) {
      inputs.push_back(found(resolved.sources[i], resolved.inputs[i]));
      inputs.back().trained = resolved.input_gradient[i];
    }
    LayerWork work;
    std::vector<Tensor> outputs;
    if (resolved.nodes.empty()) {
      for (int o = 0; o < static_cast<int>(resolved.outputs.size()); ++o)
        outputs.push_back(made(index, -1, o, {resolved.outputs[at(o)], 1, 0}));
      const OpRow* row = layer.call ? nullptr : find_op(layer.op);
      add({row, layer.attributes, inputs, outputs, size_ * resolved.forward_flops.value,
           elements(resolved, nullptr, Which::all), elements(resolved, nullptr, Which::trained)},
          inputs, layer.name, work, outputs);
    } else {
      outputs = graph(layer.nodes, resolved, index, inputs, work);
    }
    for (int o = 0; o < static_cast<int>(outputs.size()); ++o) tensors_[{index, -1, o}] = outputs[at(o)];
    finish(inputs, outputs, work);
    return work;
  }

  LayerWork loss() {
    const ResolvedLayer& resolved = model_.loss;
    const LossSpec& spec = *model_.graph.loss;
    std::vector<Tensor> inputs;
    for (std::size_t i = 0; i < model_.loss_sources.size(); ++i) {
      inputs.push_back(found(model_.loss_sources[i], resolved.inputs[i]));
      inputs.back().trained = resolved.input_gradient[i];
    }
    LayerWork work;
    std::vector<Tensor> outputs;
    const int index = model_.layer_count();
    if (resolved.nodes.empty()) {
      outputs.push_back({{index, -1, 0}, {{}, DType::float32}, 1});
      add({find_loss(spec.op), spec.attributes, inputs, outputs, size_ * resolved.forward_flops.value}, inputs,
          "loss", work, outputs);
    } else {
      outputs = graph(spec.nodes, resolved, index, inputs, work);
    }
    finish(inputs, outputs, work);
    return work;
  }

  /// Sums up the nodes; FLOPs of calls are shared by their outputs.
  std::vector<Tensor> graph(const std::vector<Layer>& nodes, const ResolvedLayer& resolved, int index,
                            const std::vector<Tensor>& inputs, LayerWork& work) {
    const auto source = [&](const TensorSource& from) {
      return from.kind == TensorSource::Kind::layer ? tensors_.at({index, from.index, from.output})
                                                    : inputs[at(from.index)];
    };
    for (int n = 0; n < static_cast<int>(nodes.size()); ++n) {
      const ResolvedNode& node = resolved.nodes[at(n)];
      std::vector<Tensor> in, out;
      for (const TensorSource& from : node.sources) in.push_back(source(from));
      for (int o = 0; o < static_cast<int>(node.outputs.size()); ++o)
        out.push_back(made(index, n, o, node.outputs[at(o)]));
      const Layer& what = nodes[at(n)];
      const OpRow* row = what.call ? nullptr : find_op(what.op);
      const double flops = node_flops(what, row, node, out);
      const double weights = elements(resolved, &node, Which::all);
      const double trained = elements(resolved, &node, Which::trained);
      add({row, what.attributes, in, out, flops, weights, trained}, inputs, what.name, work, out);
      for (int o = 0; o < static_cast<int>(out.size()); ++o) tensors_[{index, n, o}] = out[at(o)];
    }
    std::vector<Tensor> outputs;
    for (const TensorSource& from : resolved.graph_outputs) outputs.push_back(source(from));
    return outputs;
  }

  double node_flops(const Layer& node, const OpRow* row, const ResolvedNode& resolved,
                    const std::vector<Tensor>& outputs) const {
    if (row == nullptr) return node.call ? size_ * node.call->flops : 0;
    std::vector<TensorType> types;
    for (const RowTensor& input : resolved.inputs) types.push_back(input.type);
    return (outputs.empty() ? size_ : outputs.front().rows) *
           row->infer(node.attributes, types).forward_flops.value;
  }

  /// A tensor that comes into a layer.
  Tensor found(const TensorSource& source, const TensorType& type) const {
    if (source.kind == TensorSource::Kind::layer) return tensors_.at({source.index, -1, source.output});
    const int data = source.kind == TensorSource::Kind::input ? -1 : -2;
    return {{data, source.index, 0}, type, size_};
  }

  enum class Which { all, trained };
  /// Of the layer's parameters, or of a node's; none is trained where no gradient arrives.
  static double elements(const ResolvedLayer& layer, const ResolvedNode* node, Which which) {
    double sum = 0;
    const auto add = [&](std::size_t i) {
      if (which == Which::all || (layer.backward && layer.trained[i]))
        sum += static_cast<double>(element_count(layer.parameters[i].shape));
    };
    if (node == nullptr) {
      for (std::size_t i = 0; i < layer.parameters.size(); ++i) add(i);
    } else {
      for (const int parameter : node->parameters) add(at(parameter));
    }
    return sum;
  }

  /// Adds one operation to its layer, and says which of its outputs have a gradient, or are another's memory.
  void add(const Operation& what, const std::vector<Tensor>& layer_inputs, const std::string& name,
           LayerWork& work, std::vector<Tensor>& outputs) {
    if (what.row != nullptr && !what.row->runnable)
      throw Error(ErrorKind::data, "layer " + name + " is " + std::string(what.row->name) +
                                       " and has no arithmetic to estimate; give a model of real operations");
    // A call of LibTorch says its FLOPs; what it keeps are its inputs.
    const OpWork kind = what.row != nullptr
                            ? what.row->work
                            : OpWork{.kind = OpWork::Kind::products, .keeps = OpWork::Keeps::inputs};
    const bool passes = std::ranges::any_of(what.inputs, [](const Tensor& tensor) { return tensor.trained; });
    for (Tensor& output : outputs)
      output.trained = (passes || what.trained > 0) && is_floating(output.type.dtype);
    if (kind.kind == OpWork::Kind::view) {
      for (Tensor& output : outputs) output.maker = what.inputs.front().maker;
      return;
    }
    const OpInside inside = inside_of(what, kind);
    add_times(what, kind, inside, passes, work);
    if (passes || what.trained > 0) add_saved(what, kind, inside, layer_inputs, work);
    work.workspace += static_cast<double>(size_of(dtype_)) * inside.moved / 2;
  }

  double kept(const Operation& what, const OpWork& kind) const {
    switch (kind.keeps) {
      case OpWork::Keeps::nothing: return 0;
      case OpWork::Keeps::inputs: return bytes(what.inputs);
      case OpWork::Keeps::output: return bytes(what.outputs);
    }
    return 0;
  }

  /// Of the whole micro-batch.
  OpInside inside_of(const Operation& what, const OpWork& kind) const {
    if (kind.inside == nullptr) return {};
    std::vector<TensorType> types;
    for (const Tensor& input : what.inputs) types.push_back(input.type);
    OpInside inside = kind.inside(what.attributes, types);
    const double rows = what.inputs.front().rows;
    for (double* part : {&inside.kept, &inside.kept_bytes, &inside.moved, &inside.flops}) *part *= rows;
    return inside;
  }

  void add_times(const Operation& what, const OpWork& kind, const OpInside& inside, bool passes,
                 LayerWork& work) const {
    const double element = static_cast<double>(size_of(dtype_));
    const double weights = element * what.weights, moved = element * inside.moved;
    const double in = bytes(what.inputs), out = bytes(what.outputs);
    const bool products = kind.kind == OpWork::Kind::products;
    const auto make = [&](double flops, double bytes_moved) {
      return Work{products ? flops : 0, products ? 0 : flops, bytes_moved, kind.kernels,
                  products && flops > 0 ? 1 : 0};
    };
    // An embedding reads the rows it hands on.
    work.forward += make(what.flops, in + out + (products ? weights : std::min(weights, out)) + moved);
    const double with_weights = what.flops - std::min(inside.flops, what.flops);
    const double gradient = gradients(what.inputs);
    const bool together = passes && what.row != nullptr && what.row->weight_gradient_with_input;
    // Both factors of a product without weights have gradients. What is not a product reads what it kept.
    if (passes && !kind.passes_gradients) {
      const double read = products ? weights + 2 * moved : kept(what, kind) + moved;
      const double flops = what.weights > 0 || !products ? what.flops + inside.flops : 2 * what.flops;
      work.input_gradient += make(flops, out + read + gradient);
    }
    // Written, then added to the gradient of the mini-batch.
    if (what.trained == 0) return;
    const double share = what.trained / what.weights;
    Work& gradients_of_weights = together ? work.input_gradient : work.weight_gradient;
    gradients_of_weights += make(products ? share * with_weights : 0,
                                 (products ? out + share * in : out) + 4 * element * what.trained);
  }

  void add_saved(const Operation& what, const OpWork& kind, const OpInside& inside,
                 const std::vector<Tensor>& layer_inputs, LayerWork& work) {
    const auto keep = [&](const Tensor& tensor) {
      if (!kept_.insert(tensor.maker).second) return;
      work.saved += bytes(tensor);
      const bool own =
          std::ranges::any_of(layer_inputs, [&](const Tensor& input) { return input.maker == tensor.maker; });
      if (own) work.saved_input += bytes(tensor);
    };
    if (kind.keeps == OpWork::Keeps::inputs) std::ranges::for_each(what.inputs, keep);
    if (kind.keeps == OpWork::Keeps::output) std::ranges::for_each(what.outputs, keep);
    const double element = static_cast<double>(size_of(dtype_));
    work.saved += element * inside.kept + inside.kept_bytes;
  }

  void finish(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs, LayerWork& work) const {
    work.output = bytes(outputs);
    work.workspace += gradients(inputs) + gradients(outputs);
  }

  const ResolvedModel& model_;
  DType dtype_;
  double size_;
  std::map<Maker, Tensor> tensors_;
  std::set<Maker> kept_;
};

}  // namespace

std::vector<LayerWork> layer_work(const ResolvedModel& model, DType dtype, std::int64_t micro_batch_size) {
  return Accountant(model, dtype, micro_batch_size).run();
}

}  // namespace pp::profile
