#include "libprofile/model/bound_segment.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "libprofile/core/error.h"
#include "libprofile/core/model/counted_labels.h"
#include "libprofile/core/ops/op_table.h"
#include "libprofile/model/aten/call.h"
#include "libprofile/model/errors.h"
#include "libprofile/model/ops/forward.h"
#include "libprofile/model/segment_plan.h"

namespace pp::model::detail {
namespace {

BoundLayer bind_planned(const ResolvedModel& model, const PlannedLayer& planned) {
  return guarded([&] { return layer_name(model, planned); },
                 [&] { return planned.layer < 0 ? bind_loss(model) : bind_layer(model, planned.layer); });
}

}  // namespace

BoundSegment bind_segment(const ResolvedModel& model, SegmentPlan plan, MemoryFormat format) {
  BoundSegment bound{std::move(plan), format, {}};
  for (const PlannedLayer& planned : bound.plan.order) bound.layers.push_back(bind_planned(model, planned));
  return bound;
}

}  // namespace pp::model::detail

namespace pp::model {

BoundLayer bind_layer(const ResolvedModel& model, int layer) {
  const Layer& spec = model.graph.layers[static_cast<std::size_t>(layer)];
  if (spec.op == kGraphOp || spec.op == kAtenOp)
    return bind_graph(spec, model.layers[static_cast<std::size_t>(layer)]);
  return bind_layer(spec.op, spec.attributes);
}

BoundLayer bind_loss(const ResolvedModel& model) {
  const LossSpec& loss = *model.graph.loss;
  return loss.op == kGraphOp ? bind_loss_graph(loss, model.loss) : bind_loss(loss.op, loss.attributes);
}

void check_bindable(const ResolvedModel& model) {
  detail::PlannedLayer planned;
  for (planned.layer = 0; planned.layer < model.layer_count(); ++planned.layer)
    detail::bind_planned(model, planned);
  planned.layer = -1;
  if (model.graph.loss) detail::bind_planned(model, planned);
  counted_labels(model);
}

}  // namespace pp::model

namespace pp::model {

namespace {

/// Tensors are numbered: the inputs of the layer, then the outputs of every node.
struct Node {
  std::string name;          ///< for messages; empty: the layer itself
  aten::BoundCall run;       ///< of an operation of the table without constants
  aten::BoundCall sum = {};  ///< in place of `run` where a mean over labels has none
  bool precise = false;      ///< AtenCall::precise
  std::vector<std::size_t> sources;
  std::vector<int> reads;                        ///< how often it reads each of them
  std::vector<std::size_t> parameters, buffers;  ///< of the layer's
  std::size_t first_output = 0;
  std::vector<std::size_t> released;  ///< tensors that nobody reads behind this node
};

struct Program {
  std::vector<Node> nodes;
  std::vector<std::size_t> outputs;
  std::vector<bool> shared;  ///< per input of the layer: it is read several times
  bool precise = false;      ///< some node is
  bool loss = false;         ///< the result stays as a precise node has made it
  std::size_t tensors = 0;
};

std::vector<std::size_t> numbers(const std::vector<int>& indices) { return {indices.begin(), indices.end()}; }

/// The node's own share of weights or buffers, of which in training there may be none.
Tensors picked(const std::vector<std::size_t>& indices, TensorSpan tensors) {
  Tensors own;
  for (const std::size_t index : indices) {
    if (index < tensors.size()) own.push_back(tensors[index]);
  }
  return own;
}

class Runner {
 public:
  Runner(const Program& program, TensorSpan inputs, TensorSpan weights, LayerContext& context)
      : program_(program), weights_(weights), context_(context), tensors_(program.tensors) {
    for (std::size_t k = 0; k < inputs.size(); ++k)
      tensors_[k] = program.shared[k] && inputs[k].requires_grad() ? ops::once(inputs[k]) : inputs[k];
  }

  Tensors run() {
    for (std::size_t i = 0; i < program_.nodes.size(); ++i) {
      const Node& node = program_.nodes[i];
      const double share = program_.loss && i < context_.label_shares.size() ? context_.label_shares[i] : 1;
      if (node.name.empty()) {
        run(node, share);
      } else {
        detail::guarded([&] { return "node \"" + node.name + "\""; }, [&] { run(node, share); });
      }
    }
    Tensors outputs;
    for (const std::size_t number : program_.outputs)
      outputs.push_back(program_.loss ? tensors_[number] : in_run_type(tensors_[number]));
    return outputs;
  }

 private:
  void run(const Node& node, double share) {
    Tensors inputs;
    for (const std::size_t source : node.sources)
      inputs.push_back(node.precise ? tensors_[source] : in_run_type(tensors_[source]));
    const Tensors buffers = picked(node.buffers, context_.buffers);
    LayerContext inner = context_;
    inner.buffers = buffers;
    inner.first_buffer = node.buffers.empty() ? 0 : static_cast<int>(node.buffers.front());
    const aten::BoundCall& call = share == 0 ? node.sum : node.run;
    Tensors outputs = call.forward(inputs, picked(node.parameters, weights_), inner);
    if (share != 1) outputs.front() = outputs.front().mul(share);
    context_.seeded = inner.seeded;
    for (std::size_t k = 0; k < outputs.size(); ++k) tensors_[node.first_output + k] = outputs[k];
    for (const std::size_t number : node.released) tensors_[number].reset();
  }

  /// What a precise node has made, for those that are not.
  at::Tensor in_run_type(const at::Tensor& tensor) const {
    const bool wider = program_.precise && tensor.is_floating_point() &&
                       tensor.scalar_type() == aten::precise_type(context_.dtype);
    return wider ? tensor.to(context_.dtype) : tensor;
  }

  const Program& program_;
  TensorSpan weights_;
  LayerContext& context_;
  std::vector<at::Tensor> tensors_;
};

/// Who reads what for the last time; inputs that are read several times.
void complete(Program& program) {
  std::vector<std::size_t> last(program.tensors, program.nodes.size());
  std::vector<int> reads(program.tensors, 0);
  program.precise = std::ranges::any_of(program.nodes, &Node::precise);
  for (std::size_t i = 0; i < program.nodes.size(); ++i) {
    const Node& node = program.nodes[i];
    for (std::size_t k = 0; k < node.sources.size(); ++k) {
      last[node.sources[k]] = i;
      reads[node.sources[k]] += node.reads[k];
    }
  }
  for (const std::size_t output : program.outputs) last[output] = program.nodes.size();
  for (std::size_t t = 0; t < program.tensors; ++t) {
    if (last[t] < program.nodes.size()) program.nodes[last[t]].released.push_back(t);
  }
  for (std::size_t k = 0; k < program.shared.size(); ++k) program.shared[k] = reads[k] > 1;
}

BoundLayer bound(std::shared_ptr<Program> program) {
  complete(*program);
  std::shared_ptr<const Program> kept = std::move(program);
  const auto forward = [program = kept](TensorSpan inputs, TensorSpan weights,
                                        LayerContext& context) -> Tensors {
    const std::int64_t samples = std::exchange(context.samples, inputs[0].size(0));
    const auto device = std::exchange(context.device, inputs[0].device());
    Tensors outputs = Runner(*program, inputs, weights, context).run();
    context.samples = samples;
    context.device = device;
    return outputs;
  };
  BoundLayer layer{forward, WeightGradient::with_input};
  layer.deterministic =
      std::ranges::all_of(kept->nodes, [](const Node& node) { return node.run.deterministic; });
  layer.held = [program = std::move(kept)](std::vector<at::Tensor>& tensors) {
    for (const Node& node : program->nodes) {
      if (node.run.constants) node.run.constants->collect(tensors);
      if (node.run.held) node.run.held(tensors);
    }
  };
  return layer;
}

/// An input may stand several times among a call's arguments.
std::vector<int> reads_of(const Layer& node, std::size_t inputs) {
  std::vector<int> reads(inputs, node.call ? 0 : 1);
  if (!node.call) return reads;
  for (const auto& [name, value] : node.call->arguments) {
    for_each_tensor(value, [&](const TensorArgument& tensor) {
      if (tensor.kind == TensorArgument::Kind::input) ++reads[static_cast<std::size_t>(tensor.index)];
    });
  }
  return reads;
}

aten::BoundCall bind_node(const Layer& node, std::span<const RowTensor> inputs) {
  if (node.call) return aten::bind_call(*node.call, inputs);
  BoundLayer layer = bind_layer(node.op, node.attributes);
  return {std::move(layer.forward), nullptr, std::move(layer.held), layer.deterministic};
}

std::shared_ptr<Program> graph_program(const std::vector<Layer>& nodes, const ResolvedLayer& resolved) {
  auto program = std::make_shared<Program>();
  const std::size_t inputs = resolved.sources.size();
  program->shared.resize(inputs);
  program->tensors = inputs;
  const auto number = [&](const TensorSource& source) {
    const auto index = static_cast<std::size_t>(source.index);
    return source.kind == TensorSource::Kind::input
               ? index
               : program->nodes[index].first_output + static_cast<std::size_t>(source.output);
  };
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const ResolvedNode& of = resolved.nodes[i];
    Node node{.name = nodes[i].name,
              .run = {},
              .precise = nodes[i].call && nodes[i].call->precise,
              .sources = {},
              .reads = reads_of(nodes[i], of.sources.size()),
              .parameters = numbers(of.parameters),
              .buffers = numbers(of.buffers),
              .first_output = program->tensors,
              .released = {}};
    node.run = detail::guarded([&] { return "node \"" + node.name + "\""; },
                               [&] { return bind_node(nodes[i], of.inputs); });
    for (const TensorSource& source : of.sources) node.sources.push_back(number(source));
    program->tensors += of.outputs.size();
    program->nodes.push_back(std::move(node));
  }
  for (const TensorSource& source : resolved.graph_outputs) program->outputs.push_back(number(source));
  return program;
}

/// One node, the layer itself.
std::shared_ptr<Program> call_program(const Layer& layer, const ResolvedLayer& resolved) {
  const auto up_to = [](std::size_t first, std::size_t count) {
    std::vector<std::size_t> all(count);
    std::iota(all.begin(), all.end(), first);
    return all;
  };
  std::vector<RowTensor> types;
  for (const TensorType& type : resolved.inputs) types.push_back({type, 1});
  auto program = std::make_shared<Program>();
  const std::size_t inputs = types.size(), outputs = resolved.outputs.size();
  program->nodes.push_back({.name = {},
                            .run = bind_node(layer, types),
                            .precise = layer.call && layer.call->precise,
                            .sources = up_to(0, inputs),
                            .reads = reads_of(layer, inputs),
                            .parameters = up_to(0, resolved.parameters.size()),
                            .buffers = up_to(0, resolved.buffers.size()),
                            .first_output = inputs,
                            .released = {}});
  program->outputs = up_to(inputs, outputs);
  program->shared.resize(inputs);
  program->tensors = inputs + outputs;
  return program;
}

}  // namespace

BoundLayer bind_graph(const Layer& layer, const ResolvedLayer& resolved) {
  const bool graph = layer.op == kGraphOp;
  return bound(graph ? graph_program(layer.nodes, resolved) : call_program(layer, resolved));
}

BoundLayer bind_loss_graph(const LossSpec& loss, const ResolvedLayer& resolved) {
  std::vector<Layer> nodes = loss.nodes;
  for (Layer& node : nodes) {
    if (node.call) node.call->precise = true;
  }
  auto program = graph_program(nodes, resolved);
  program->loss = true;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    program->nodes[i].precise |= program->nodes[i].parameters.empty();
    const auto labels = nodes[i].call ? label_call(*nodes[i].call) : std::nullopt;
    if (!labels || !labels->mean) continue;
    nodes[i].call->arguments["reduction"] = AtenValue{std::int64_t{at::Reduction::Sum}};
    program->nodes[i].sum = bind_node(nodes[i], resolved.nodes[i].inputs);
  }
  return bound(std::move(program));
}

}  // namespace pp::model
