#include "libplan/simulate/op_costs.h"

#include <algorithm>

namespace pp::plan {
namespace {

std::size_t at(int i) { return ProgramIndex::at(i); }

double scale_of(const SimulationInput& input, const Op& op) {
  const bool whole = input.micro_batch_scale.empty() || !has_micro_batch(op.kind);
  return whole ? 1 : input.micro_batch_scale[at(op.micro_batch)];
}

}  // namespace

double least_duration(const ProgramIndex& index, const SimulationInput& input, int id) {
  const Op& op = index.ops[at(id)];
  const StageCosts& costs = input.stages[pp::index(op.stage)];
  const double scale = scale_of(input, op) / index.slice(id).parts;
  switch (op.kind) {
    case OpKind::forward: return costs.forward.count() * scale;
    case OpKind::backward: return costs.backward.count() * scale;
    case OpKind::input_gradient: return costs.input_gradient.count() * scale;
    case OpKind::weight_gradient: return costs.weight_gradient.count() * scale;
    case OpKind::recompute: return costs.recompute.count() * scale;
    case OpKind::update: return costs.update.count();
    case OpKind::load: return costs.load.count();
    case OpKind::evict: return costs.evict.count();
    case OpKind::all_reduce:
    case OpKind::tied_all_reduce: break;
  }
  return 0;
}

FreeTransfers::FreeTransfers(const ProgramIndex& index, const SimulationInput& input)
    : index_(index), input_(input), flows_(index.dependencies.size()) {
  if (input.edges.empty()) {
    for (Flow& flow : flows_) flow = {0, 0, 1, 1};
  }
  for (const StageEdge& edge : input.edges) {
    const Dependency pair{number(edge.from), number(edge.to)};
    const auto found = std::ranges::find(index.dependencies, pair);
    Flow& flow = flows_[static_cast<std::size_t>(found - index.dependencies.begin())];
    flow.activation += static_cast<double>(edge.activation.value);
    flow.activation_tensors += edge.activation_tensors;
    if (edge.gradient_tensors == 0) continue;
    flow.gradient += static_cast<double>(edge.gradient.value);
    flow.gradient_tensors += edge.gradient_tensors;
  }
}

double FreeTransfers::seconds(int producer, int consumer, int edge) const {
  const int from = index_.worker_of[at(producer)];
  const int to = index_.worker_of[at(consumer)];
  if (edge == kNone || from == to || input_.links.empty()) return 0;
  const Op& op = index_.ops[at(producer)];
  const bool forward = op.kind == OpKind::forward;
  const Flow& flow = flows_[at(edge)];
  const Link& link = input_.link(from, to);
  const double share = overlap(index_.slice(producer), index_.slice(consumer)) * scale_of(input_, op);
  const double bytes = (forward ? flow.activation : flow.gradient) * share;
  const double occupancy = link.bandwidth.value > 0 ? bytes / link.bandwidth.value : 0;
  return occupancy + (forward ? flow.activation_tensors : flow.gradient_tensors) * link.latency.count();
}

}  // namespace pp::plan
