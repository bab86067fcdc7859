#include "tests/librun/promise.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "tests/librun/reference.h"

namespace pp::test {

using namespace pp;

namespace {

/// The stages' layers one after the other are the model's layers in their order.
bool in_model_order(const plan::Plan& plan) {
  std::size_t position = 0;
  for (const plan::Stage& stage : plan.stages) {
    for (const std::string& layer : stage.layers) {
      if (layer != plan.model.layers[position++].name) return false;
    }
  }
  return true;
}

/// Some tensor has several consumers in a stage between its producer and its last one: their gradients are
/// added there first.
bool adds_in_between(const plan::Plan& plan, const ResolvedModel& model) {
  std::map<std::string, int> stage_of;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    for (const std::string& layer : plan.stages[s].layers) stage_of[layer] = static_cast<int>(s);
  }
  std::map<std::pair<int, int>, std::map<int, int>> readers;  // of a layer's output, by stage
  const auto read = [&](const TensorSource& source, int stage) {
    if (source.kind == TensorSource::Kind::layer) ++readers[{source.index, source.output}][stage];
  };
  for (std::size_t l = 0; l < model.layers.size(); ++l) {
    for (const TensorSource& source : model.layers[l].sources)
      read(source, stage_of[plan.model.layers[l].name]);
  }
  for (const TensorSource& source : model.loss_sources) read(source, static_cast<int>(plan.stages.size()) - 1);
  return std::ranges::any_of(readers, [&](const auto& tensor) {
    const int producer = stage_of[plan.model.layers[static_cast<std::size_t>(tensor.first.first)].name];
    const int last = tensor.second.rbegin()->first;
    return std::ranges::any_of(tensor.second, [&](const auto& entry) {
      return entry.first > producer && entry.first < last && entry.second > 1;
    });
  });
}

/// How every stage adds up its micro-batches' gradients.
bool ordered(const plan::Plan& plan, Order order) {
  std::map<StageId, int> last;
  for (const plan::Worker& worker : plan.workers) {
    for (const plan::Op& op : worker.program.program) {
      if (!completes_backward(op.kind)) continue;
      const auto [entry, first] = last.emplace(op.stage, op.micro_batch);
      if (first) continue;
      if ((op.micro_batch > entry->second) != (order == Order::ascending)) return false;
      entry->second = op.micro_batch;
    }
  }
  return true;
}

/// What a stream trains is a recursion over whole forwards and backwards: not what runs on weights that change
/// in between.
bool has_recursion(const plan::Plan& plan) {
  const plan::WeightPolicy policy = plan.schedule.weight_policy;
  if (policy != plan::WeightPolicy::predict) return policy != plan::WeightPolicy::latest;
  return std::ranges::all_of(plan.workers, [](const plan::Worker& worker) {
    const auto whole = [](const plan::Op& op) {
      return op.kind == plan::OpKind::forward || op.kind == plan::OpKind::backward ||
             op.kind == plan::OpKind::update;
    };
    return std::ranges::all_of(worker.program.stream->prologue, whole) &&
           std::ranges::all_of(worker.program.stream->body, whole);
  });
}

}  // namespace

Promise promise_of(const plan::Plan& plan) {
  using enum Promise;
  if (plan.workers.front().program.stream) {
    return in_model_order(plan) && has_recursion(plan) ? stream : unknown;
  }
  const bool replicas =
      std::ranges::any_of(plan.stages, [](const plan::Stage& stage) { return stage.workers.size() > 1; });
  if (replicas || !in_model_order(plan) || adds_in_between(plan, resolve(plan.model))) return rounding;
  if (ordered(plan, Order::ascending)) return bits;
  return ordered(plan, Order::descending) ? reversed : rounding;
}

}  // namespace pp::test
