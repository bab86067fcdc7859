#include "libplan/simulate/op_costs.h"

#include <algorithm>
#include <set>
#include <utility>

#include "libprofile/core/index.h"

namespace pp::plan {

namespace {

double scale_of(const std::vector<double>& scale, const Op& op) {
  return scale.empty() || !has_micro_batch(op.kind) ? 1 : scale[at(op.micro_batch)];
}

/// What it asks of each of its two devices.
double handled(const Sent& sent) { return handling_time(sent.bytes, sent.tensors, sent.link); }

}  // namespace

OpCosts::OpCosts(const ProgramIndex& index, const SimulationInput& input)
    : index_(index),
      input_(input),
      first_(find_first(index, input)),
      flows_(index.dependencies.size()),
      handles_messages_(std::ranges::any_of(input.links, asks_devices, &LinkLevel::link)) {
  if (input.edges.empty()) {
    for (Flow& flow : flows_) flow = {0, 0, 1, 1};
  }
  for (const StageEdge& edge : input.edges) {
    const Dependency pair{number(edge.from), number(edge.to)};
    const auto found = std::ranges::find(index.dependencies, pair);
    Flow& flow = flows_[at(found - index.dependencies.begin())];
    flow.activation += static_cast<double>(edge.activation.value);
    flow.activation_tensors += edge.activation_tensors;
    flow.gradient += static_cast<double>(edge.gradient.value);
    flow.gradient_tensors += edge.gradient_tensors;
  }
}

/// By id: of F, B and W, the first of its stage and kind after the worker's last update of it. Empty: no stage
/// tells them apart.
std::vector<bool> OpCosts::find_first(const ProgramIndex& index, const SimulationInput& input) {
  std::vector<bool> first;
  if (std::ranges::none_of(input.stages, [](const StageCosts& stage) { return stage.first.has_value(); }))
    return first;
  for (int worker = 0; worker < index.workers(); ++worker) {
    std::set<std::pair<StageId, OpKind>> seen;
    for (int id = index.worker_begin[at(worker)]; id < index.worker_begin[at(worker + 1)]; ++id) {
      const Op& op = index.ops[at(id)];
      if (op.kind == OpKind::update) std::erase_if(seen, [&](const auto& s) { return s.first == op.stage; });
      first.push_back(seen.emplace(op.stage, op.kind).second);
    }
  }
  return first;
}

/// An instruction's own time for a whole micro-batch: not of messages (message()), of sums, which depend on who
/// takes part, nor of copied weights (copy_time()). What plans do not price is free, or priced with another:
/// `stash` with its forward, `spread` with its sum, `fetch` with its update.
double OpCosts::price(InstructionKind kind, const StageCosts& costs, bool first) {
  const bool apart = first && costs.first.has_value();
  switch (kind) {
    case InstructionKind::forward: return (apart ? costs.first->forward : costs.forward).count();
    case InstructionKind::backward: return (apart ? costs.first->backward : costs.backward).count();
    case InstructionKind::weight_gradient:
      return (apart ? costs.first->weight_gradient : costs.weight_gradient).count();
    case InstructionKind::input_gradient: return costs.input_gradient.count();
    case InstructionKind::recompute: return costs.recompute.count();
    case InstructionKind::update:
    case InstructionKind::push: return costs.update.count();
    default: return 0;
  }
}

double OpCosts::own_time(int id) const {
  if (!input_.own_times.empty()) return input_.own_times[at(id)];
  const Op& op = index_.ops[at(id)];
  if (op.kind == OpKind::load || op.kind == OpKind::evict) return (1 - input_.swap_overlap) * copy_time(id);
  const double own =
      price(shape_of(op.kind).works, input_.stages[pp::index(op.stage)], !first_.empty() && first_[at(id)]);
  return has_micro_batch(op.kind) ? own * (scale_of(input_.micro_batch_scale, op) / index_.slice(id).parts)
                                  : own;
}

double OpCosts::copy_time(int id) const {
  const Op& op = index_.ops[at(id)];
  const StageCosts& costs = input_.stages[pp::index(op.stage)];
  const bool state = index_.carries_state[at(id)];
  if (op.kind == OpKind::load) return (costs.load + (state ? costs.load_state : Seconds{})).count();
  return state ? costs.evict.count() : 0;
}

Sent OpCosts::message(int producer, int consumer, int edge) const {
  const int from = index_.worker_of[at(producer)];
  const int to = index_.worker_of[at(consumer)];
  if (edge == kNone || from == to) return {};
  const Op& op = index_.ops[at(producer)];
  const bool forward = op.kind == OpKind::forward;
  const Flow& flow = flows_[at(edge)];
  const double share = overlap(index_.slice(producer), index_.slice(consumer));
  return {(forward ? flow.activation : flow.gradient) * scale_of(bytes_scale(input_), op) * share,
          forward ? flow.activation_tensors : flow.gradient_tensors,
          input_.links.empty() ? Link{} : input_.link(from, to)};
}

double OpCosts::free_transfer(int producer, int consumer, int edge) const {
  const Sent sent = message(producer, consumer, edge);
  if (sent.tensors == 0) return 0;
  const auto& [bytes, tensors, link] = sent;
  return std::max(0.0, transfer_time(bytes, tensors, link) - 2 * handling_time(bytes, tensors, link));
}

double OpCosts::receive_time(int id) const {
  double sum = 0;
  index_.for_each_producer(id, [&](int producer, int edge) { sum += handled(message(producer, id, edge)); });
  return sum;
}

double OpCosts::send_time(int id, double sum) const {
  index_.for_each_consumer(id, [&](int consumer, int edge) { sum += handled(message(id, consumer, edge)); });
  return sum;
}

}  // namespace pp::plan
