#include "libprofile/estimate/layer_work.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "libprofile/core/blocks.h"
#include "libprofile/core/error.h"
#include "libprofile/core/index.h"
#include "libprofile/core/ops/op_table.h"
#include "libprofile/estimate/operation_work.h"
#include "libprofile/estimate/token_choice.h"

namespace pp::profile {
namespace {

/// Products whose rows are multiples of so many bytes run at full speed (NVIDIA, Matrix Multiplication
/// Background User's Guide, sec. 3, requirements to use tensor cores).
constexpr std::int64_t kAlignment = 16;
/// Members exchange per position the largest logit, the label's logit and the sum of exponentials, as float32
/// (Shoeybi et al., 2019, sec. 3).
constexpr int kLossReductions = 3;

/// Who made a tensor: layer, node of its graph (-1: none) and output; data of the model has negative layers.
using Maker = std::tuple<int, int, int>;

struct Tensor {
  Maker maker{};
  TensorType type;       ///< per row
  double rows = 1;       ///< in the whole micro-batch
  bool trained = false;  ///< has a gradient
  double share = 1;      ///< of it that a member holds
};

/// An operation in a layer, a node of a graph, or a loss.
struct Operation {
  const OpRow* row = nullptr;  ///< null: a call of LibTorch
  OperationSplit split;
  const Attributes& attributes;
  std::vector<Tensor> inputs, outputs;
  double flops = 0;    ///< forward, of the micro-batch
  double weights = 0;  ///< elements
  double trained = 0;  ///< those of them that get a gradient
  bool aligned = true;
};

class Accountant {
 public:
  Accountant(const ResolvedModel& model, const std::vector<OperationSplit>& splits, const WorkOptions& options)
      : model_(model),
        splits_(splits),
        kind_(options.kind),
        dtype_(options.dtype.dtype),
        narrow_type_(options.dtype.products),
        recipe_(options.recipe),
        attention_(options.attention),
        elements_(options.elements),
        recompute_attention_(options.recompute_attention),
        logit_bytes_(options.logit_bytes),
        expert_degree_(options.expert_degree),
        expert_nodes_(options.expert_nodes),
        experts_(options.experts),
        size_(static_cast<double>(options.micro_batch_size) * options.tensor_degree /
              group_size(options.tensor_degree, options.context_degree, options.expert_degree,
                         options.shard_degree)),
        others_(options.context_degree - 1),
        degree_(options.tensor_degree),
        residual_(options.sequence_parallel ? 1.0 / options.tensor_degree : 1),
        in_block_(at(model.layer_count()) + 1, false) {
    if (!narrow_type_) return;
    for (const Block& block : blocks_of(model.graph))
      std::fill(in_block_.begin() + block.begin, in_block_.begin() + block.end, true);
  }

  std::vector<LayerWork> run() {
    std::vector<LayerWork> works;
    for (int l = 0; l < model_.layer_count(); ++l)
      works.push_back(layer(model_.graph.layers[at(l)], model_.layers[at(l)], l));
    if (model_.graph.loss) works.push_back(loss());
    if (narrow_type_ && std::ranges::none_of(works, [](const LayerWork& work) { return work.copies > 0; })) {
      throw Error(ErrorKind::usage, "products in " + std::string(name_of(*narrow_type_)) +
                                        " are those with weights in blocks, such as block3, and the model has "
                                        "none; use --dtype bfloat16");
    }
    return works;
  }

 private:
  /// Of the whole tensor, and of a member's share.
  double whole_bytes(const Tensor& tensor) const {
    const DType dtype = is_floating(tensor.type.dtype) ? dtype_ : tensor.type.dtype;
    return tensor.rows * static_cast<double>(element_count(tensor.type.shape) * size_of(dtype));
  }
  double bytes(const Tensor& tensor) const { return tensor.share * whole_bytes(tensor); }
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

  OperationSplit next_split() { return splits_[operation_++]; }

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
      add({row, next_split(), layer.attributes, inputs, outputs, size_ * resolved.forward_flops.value,
           elements(resolved, nullptr, Which::all), elements(resolved, nullptr, Which::trained),
           is_aligned(resolved, nullptr)},
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
      add({find_loss(spec.op), next_split(), spec.attributes, inputs, outputs,
           size_ * resolved.forward_flops.value},
          inputs, "loss", work, outputs);
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
      add({row, next_split(), what.attributes, in, out, flops, weights, trained, is_aligned(resolved, &node)},
          inputs, what.name, work, out);
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

  /// Whether all matrices among the parameters have rows of multiples of kAlignment, lying either way.
  bool is_aligned(const ResolvedLayer& layer, const ResolvedNode* node) const {
    const auto fits = [&](const ParameterSpec& parameter) {
      return parameter.shape.size() != 2 || std::ranges::all_of(parameter.shape, [&](std::int64_t size) {
               return size * size_of(dtype_) % kAlignment == 0;
             });
    };
    if (node == nullptr) return std::ranges::all_of(layer.parameters, fits);
    return std::ranges::all_of(node->parameters,
                               [&](int parameter) { return fits(layer.parameters[at(parameter)]); });
  }

  /// Adds one operation to its layer, and says which of its outputs have a gradient, or are another's memory.
  void add(const Operation& what, const std::vector<Tensor>& layer_inputs, const std::string& name,
           LayerWork& work, std::vector<Tensor>& outputs) {
    if (what.row != nullptr && what.row->work.kind == OpWork::Kind::unknown)
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
    if (kind.kind == OpWork::Kind::experts)
      return add_experts(what, passes || what.trained > 0, layer_inputs, work, outputs);
    const double part = share_of(what);
    for (Tensor& output : outputs) output.share = output_share(what, output);
    const OpInside inside = inside_of(what, kind, part, attention_);
    const bool again = recompute_attention_ && kind.attention && inside.flops > 0;
    // What is made again in the backward is all that one kernel would not hold.
    const OpInside held = again ? inside_of(what, kind, part, AttentionKernel::one_kernel) : inside;
    const bool narrow = is_narrow(what, outputs);
    const OperationSize size = size_of_operation(what, outputs, kind, inside, part, passes, narrow);
    if (narrow) work.copies += recipe_.weight_copies * bytes_per_number(*narrow_type_) * size.weights;
    append(work.forward, forward_work(size));
    if (again && passes) append(work.input_gradient, attention_work(size));
    append(work.input_gradient, input_gradient_work(size));
    append(work.weight_gradient, weight_gradient_work(size));
    add_reductions(what, outputs, work);
    if (others_ > 0 && kind.attention) add_gathers(what, passes, work);
    if (passes || what.trained > 0) add_saved(what, outputs, kind, held, layer_inputs, size.narrow, work);
    work.workspace += inside_bytes(what, inside) - inside_bytes(what, held);
    work.workspace += element_inside(what) * inside.moved / 2 + size.in - bytes(what.inputs);
    // Within a graph autograd makes it.
    const bool alone = !outputs.empty() && std::get<1>(outputs.front().maker) < 0;
    const bool added = kind.adds_products && alone && (!kind.attention || inside.one_kernel);
    if (!added) largest_gradient_ = std::max(largest_gradient_, size.element * size.trained);
  }

  /// A router in float32, tokens in order of their experts, exchanged and back, and the experts' products
  /// between, of the device that gets most tokens.
  void add_experts(const Operation& what, bool any, const std::vector<Tensor>& layer_inputs, LayerWork& work,
                   std::vector<Tensor>& outputs) {
    const Tensor& input = what.inputs.front();
    outputs.front().share = input.share;
    const auto number = [&](const char* name) { return static_cast<double>(integer(what.attributes, name)); };
    const auto width = static_cast<double>(input.type.shape.back());
    const double element = static_cast<double>(size_of(dtype_)), full = size_of(DType::float32);
    const double tokens = bytes(input) / element / width, scores = tokens * number("num_experts");
    const double sent = tokens * number("experts_per_token"), rows = experts_.imbalance * sent;
    const double hidden = number("hidden"), trained = what.trained / what.weights;
    const double local = number("num_experts") / expert_degree_;
    const int others = expert_degree_ - 1;
    const bool narrow = is_narrow(what, outputs);
    const double ratio = narrow ? bytes_per_number(*narrow_type_) / element : 1;
    const OpWork moving{.kernels = others > 0 && local > 1 ? 2 : 1};  // by device, then by expert
    OpWork product{.kind = OpWork::Kind::products, .keeps = OpWork::Keeps::inputs};
    OperationSize router{.work = product,
                         .flops = 2 * scores * width,
                         .weights = number("num_experts") * width,
                         .trained = trained * number("num_experts") * width,
                         .element = full,
                         .in = full * tokens * width,
                         .out = full * scores,
                         .gradient = input.trained ? full * tokens * width : 0,
                         .passes = input.trained,
                         .full = true};
    const OperationSize choice{.work = {.kernels = 4},
                               .flops = 5 * scores,
                               .in = full * scores,
                               .out = full * scores,
                               .kept = full * scores,
                               .gradient = full * scores,
                               .passes = any};
    const auto move = [&](double in, double out) {
      const double again = 2 * (moving.kernels - 1) * element * sent * width;
      return OperationSize{.work = moving,
                           .in = element * in,
                           .out = element * out + again,
                           .gradient = any ? element * in : 0,
                           .passes = any};
    };
    product.kernels = experts_.grouped ? 1 : static_cast<int>(local);
    product.weight_products = static_cast<int>(local);
    const auto multiply = [&](double in, double out, bool passes) {
      const double cast = narrow ? recipe_.cast_bytes : 0;
      return OperationSize{.work = product,
                           .flops = 2 * rows * in * out / experts_.efficiency,
                           .weights = local * in * out,
                           .trained = trained * local * in * out,
                           .element = element,
                           .in = element * rows * in,
                           .out = element * rows * out,
                           .kept = element * rows * in,
                           .gradient = passes ? element * rows * in : 0,
                           .passes = passes,
                           .narrow = narrow ? ratio : 0,
                           .cast = {cast * rows * in, cast * rows * out}};
    };
    const OperationSize activation{.work = {.keeps = OpWork::Keeps::inputs},
                                   .flops = 6 * rows * hidden,
                                   .in = element * 2 * rows * hidden,
                                   .out = element * rows * hidden,
                                   .kept = element * 2 * rows * hidden,
                                   .gradient = element * 2 * rows * hidden,
                                   .passes = any};
    const OperationSize up = multiply(width, 2 * hidden, input.trained), down = multiply(hidden, width, any);
    for (const OperationSize& size : {router, choice, move(tokens * width, sent * width), up, activation, down,
                                      move(sent * width, tokens * width)}) {
      append(work.forward, forward_work(size));
      append(work.input_gradient, input_gradient_work(size));
      append(work.weight_gradient, weight_gradient_work(size));
    }
    work.forward.front().host = experts_.host;
    if (!work.input_gradient.empty()) work.input_gradient.front().host = 2 * experts_.host;
    const TokenChoice routes{number("num_experts"), number("experts_per_token"), number("groups"),
                             number("groups_per_token")};
    if (others > 0) work.forward_exchanges = exchanges(2 * element * tokens * width, routes);
    if (narrow) work.copies += recipe_.weight_copies * ratio * element * (up.weights + down.weights);
    if (!any) return;
    work.backward_exchanges = work.forward_exchanges;
    keep(input, layer_inputs, work);
    // Scores and shares; what experts get, make and activate; where each token went.
    work.saved +=
        2 * full * scores + rows * element * (ratio * width + 2 * hidden + ratio * hidden) + 12 * sent;
    work.workspace += element * rows * (width + 2 * hidden);
  }

  /// `bytes`: of a member's tokens, there and back, were each sent to one device.
  Exchanges exchanges(double bytes, const TokenChoice& choice) const {
    const double members = expert_degree_, nodes = expert_nodes_, near = members / nodes;
    const double away = (nodes - 1) / nodes, copies = choice.per_token * bytes;
    if (expert_nodes_ == 1) return {2, copies * (members - 1) / members};
    if (!experts_.once_per_node) return {2, copies * away, copies * (near - 1) / members};
    return {2, nodes_of_token(choice, expert_nodes_) * bytes * away, copies * (near - 1) / near};
  }

  static void append(std::vector<Work>& all, const std::vector<Work>& some) {
    all.insert(all.end(), some.begin(), some.end());
  }

  /// Of the operation's work, what a member does.
  static double share_of(const Operation& what) {
    switch (what.split.part) {
      case MemberPart::alike:
      case MemberPart::classes: return what.inputs.empty() ? 1 : what.inputs.front().share;
      default: return what.split.share;
    }
  }

  double output_share(const Operation& what, const Tensor& output) const {
    switch (what.split.part) {
      case MemberPart::alike: return what.inputs.empty() ? output.share : what.inputs.front().share;
      case MemberPart::columns:
      case MemberPart::heads: return what.split.share;
      case MemberPart::rows:
      case MemberPart::attention:
      case MemberPart::table: return residual_;
      case MemberPart::classes:
      case MemberPart::experts: return 1;
    }
    return 1;
  }

  /// Products by columns read the whole input, those by rows make a part of each sum of the whole output.
  OperationSize size_of_operation(const Operation& what, const std::vector<Tensor>& outputs, const OpWork& kind,
                                  const OpInside& inside, double part, bool passes, bool narrow) {
    const MemberPart member = what.split.part;
    const bool gathers = member == MemberPart::columns || member == MemberPart::attention;
    const bool sums = member == MemberPart::rows || member == MemberPart::attention;
    const auto total = [&](const std::vector<Tensor>& tensors, bool whole) {
      double sum = 0;
      for (const Tensor& tensor : tensors) sum += whole ? whole_bytes(tensor) : bytes(tensor);
      return sum;
    };
    const double held = member == MemberPart::alike || member == MemberPart::classes ? 1 : what.split.share;
    return {.work = kind,
            .inside = inside,
            .loss = is_loss(what),
            .gradients_together = what.row != nullptr && what.row->weight_gradient_with_input,
            .aligned = what.aligned || held != 1,  // a divided vocabulary is padded
            .flops = part * what.flops,
            .weights = held * what.weights,
            .trained = held * what.trained,
            .element = static_cast<double>(size_of(dtype_)),
            .in = total(what.inputs, gathers),
            .out = total(outputs, sums),
            .kept = kept(what, outputs, kind),
            .gradient = gradients(what.inputs),
            .passes = passes,
            .narrow = narrow ? bytes_per_number(*narrow_type_) / static_cast<double>(size_of(dtype_)) : 0,
            .cast = narrow ? casts(what, outputs) : Casts{}};
  }

  /// Products with weights within blocks: not of the embedding, the head or attention itself.
  bool is_narrow(const Operation& what, const std::vector<Tensor>& outputs) const {
    if (what.row == nullptr || outputs.empty() || !in_block_[at(std::get<0>(outputs.front().maker))])
      return false;
    return what.row->tensor == TensorSplit::matrix || what.row->tensor == TensorSplit::attention ||
           what.row->work.kind == OpWork::Kind::experts;
  }

  /// Each input once for all products that read it, what a member has of it.
  Casts casts(const Operation& what, const std::vector<Tensor>& outputs) {
    Casts result;
    const double per_byte = recipe_.cast_bytes / static_cast<double>(size_of(dtype_));
    if (cast_.insert(what.inputs.front().maker).second) result.forward = per_byte * bytes(what.inputs.front());
    result.backward = per_byte * bytes(outputs);
    return result;
  }

  bool is_loss(const Operation& what) const {
    return what.row != nullptr && !what.outputs.empty() &&
           std::get<0>(what.outputs.front().maker) == model_.layer_count();
  }

  /// Bytes: losses are taken in float32 at least.
  double element_inside(const Operation& what) const {
    return static_cast<double>(std::max(size_of(dtype_), is_loss(what) ? size_of(DType::float32) : 0));
  }

  double inside_bytes(const Operation& what, const OpInside& inside) const {
    return element_inside(what) * inside.kept + inside.kept_bytes;
  }

  void add_reductions(const Operation& what, const std::vector<Tensor>& outputs, LayerWork& work) {
    const auto reduce = [](Reductions& all, double bytes, int calls = 1) {
      all.calls += calls;
      all.bytes += bytes;
    };
    switch (what.split.part) {
      case MemberPart::rows:
      case MemberPart::table: reduce(work.forward_reductions, whole_bytes(outputs.front())); return;
      case MemberPart::attention:
        reduce(work.forward_reductions, whole_bytes(outputs.front()));
        [[fallthrough]];
      case MemberPart::columns: {
        // Products that read one tensor add up its gradient before the group does.
        const Tensor& input = what.inputs.front();
        if (input.trained && reduced_.insert(input.maker).second)
          reduce(work.backward_reductions, whole_bytes(input));
        return;
      }
      case MemberPart::classes: {
        const Tensor& logits = what.inputs.front();
        const double positions = logits.rows * static_cast<double>(element_count(logits.type.shape)) /
                                 static_cast<double>(logits.type.shape.back());
        reduce(work.forward_reductions, kLossReductions * positions * size_of(DType::float32), kLossReductions);
        return;
      }
      default: return;
    }
  }

  /// Keys and values of each other member; in the backward once more, with their gradients the other way.
  void add_gathers(const Operation& what, bool passes, LayerWork& work) const {
    double own = 2 * share_of(what) * whole_bytes(what.inputs.front());  // made of it by projections
    if (what.inputs.size() > 2) own = bytes(what.inputs[1]) + bytes(what.inputs[2]);
    work.forward_gathers.calls += others_;
    work.forward_gathers.bytes += others_ * own;
    if (!passes) return;
    work.backward_gathers.calls += 2 * others_;
    work.backward_gathers.bytes += 2 * others_ * own;
  }

  double kept(const Operation& what, const std::vector<Tensor>& outputs, const OpWork& kind) const {
    switch (kind.keeps) {
      case OpWork::Keeps::nothing: return 0;
      case OpWork::Keeps::inputs: return bytes(what.inputs);
      case OpWork::Keeps::output: return bytes(outputs);
    }
    return 0;
  }

  /// Of the whole micro-batch, a member's part of it.
  OpInside inside_of(const Operation& what, const OpWork& kind, double part, AttentionKernel kernel) const {
    if (kind.inside == nullptr) return {};
    std::vector<TensorType> types;
    for (const Tensor& input : what.inputs) types.push_back(input.type);
    Attributes attributes = what.attributes;
    if (kind.attention && kernel != AttentionKernel::by_model) {
      for (const AttributeSpec& spec : what.row->attributes)
        if (spec.probability) attributes.find(spec.name)->second = 0.0;
    }
    OpInside inside = kind.inside(attributes, types);
    const double rows = part * what.inputs.front().rows;
    for (double* field : {&inside.kept, &inside.kept_bytes, &inside.kept_on_cpu, &inside.moved, &inside.flops})
      *field *= rows;
    if (kind_ == DeviceKind::cpu) inside.kept += inside.kept_on_cpu;
    return inside;
  }

  void keep(const Tensor& tensor, const std::vector<Tensor>& layer_inputs, LayerWork& work) {
    if (!kept_.insert(tensor.maker).second) return;
    work.saved += bytes(tensor);
    const bool own =
        std::ranges::any_of(layer_inputs, [&](const Tensor& input) { return input.maker == tensor.maker; });
    if (own) work.saved_input += bytes(tensor);
  }

  void add_saved(const Operation& what, const std::vector<Tensor>& outputs, const OpWork& kind,
                 const OpInside& inside, const std::vector<Tensor>& layer_inputs, double narrow,
                 LayerWork& work) {
    const auto keep_all = [&](const std::vector<Tensor>& tensors) {
      for (const Tensor& tensor : tensors) keep(tensor, layer_inputs, work);
    };
    const OpWork::Composed composed =
        elements_ == ElementKernels::composed ? kind.composed : OpWork::Composed::alike;
    if (composed == OpWork::Composed::gate) work.saved += bytes(outputs);
    if (composed == OpWork::Composed::norm) {
      work.saved += (1 + size_of(DType::float32) / static_cast<double>(size_of(dtype_))) * bytes(what.inputs);
    } else if (kind.keeps == OpWork::Keeps::inputs && narrow > 0) {
      const Tensor& input = what.inputs.front();
      if (kept_narrow_.insert(input.maker).second) work.saved += narrow * bytes(input);
    } else if (kind.keeps == OpWork::Keeps::inputs) {
      keep_all(what.inputs);
    }
    if (kind.keeps == OpWork::Keeps::output || inside.keeps_output) keep_all(outputs);
    work.saved += inside_bytes(what, inside);
    if (what.split.part == MemberPart::classes || is_loss(what))
      work.saved += logit_bytes_ / static_cast<double>(size_of(dtype_)) * bytes(what.inputs.front());
  }

  void finish(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs, LayerWork& work) {
    work.output = bytes(outputs);
    for (const Tensor& output : outputs)
      work.message += std::min(output.share, 1 / degree_) * whole_bytes(output);
    // A gradient of weights that no product adds is made, then added to the mini-batch's.
    work.workspace += gradients(inputs) + gradients(outputs) + std::exchange(largest_gradient_, 0);
  }

  const ResolvedModel& model_;
  const std::vector<OperationSplit>& splits_;
  std::size_t operation_ = 0;  ///< the next of `splits_`
  DeviceKind kind_;
  DType dtype_;
  std::optional<NarrowType> narrow_type_;
  Recipe recipe_;
  AttentionKernel attention_;
  ElementKernels elements_;
  bool recompute_attention_;
  double logit_bytes_;
  int expert_degree_, expert_nodes_;
  ExpertKernels experts_;
  double size_;                  ///< samples, of which members of a tensor group have the same
  int others_;                   ///< members of it
  double degree_;                ///< members
  double residual_;              ///< share of a member of what lies between blocks
  double largest_gradient_ = 0;  ///< bytes, of the weights of one operation of the layer
  std::set<Maker> reduced_;      ///< whose gradients are added up
  std::map<Maker, Tensor> tensors_;
  std::vector<bool> in_block_;                 ///< whose products are of the narrow type, where there is one
  std::set<Maker> kept_, cast_, kept_narrow_;  ///< the last two in the narrow type
};

}  // namespace

std::vector<LayerWork> layer_work(const ResolvedModel& model, const std::vector<OperationSplit>& splits,
                                  const WorkOptions& options) {
  return Accountant(model, splits, options).run();
}

}  // namespace pp::profile
