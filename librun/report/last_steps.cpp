#include "librun/report/last_steps.h"

#include <algorithm>
#include <limits>

#include "libplan/price/predict.h"
#include "libplan/search/planner.h"

namespace pp::run {
namespace {

constexpr int kMostMiniBatches = 24;  ///< of a stream

bool streams(const plan::Plan& plan) { return plan.workers.front().program.stream.has_value(); }

int steps_to_show(const plan::Plan& plan) {
  return streams(plan) ? std::min(3 * static_cast<int>(plan.workers.size()), kMostMiniBatches) : 2;
}

/// Micro-batches are told apart within a step of a program, and from the first one that is shown of a stream.
void renumber(std::vector<TimedOp>& ops, std::vector<plan::MessageEvent>& messages, const plan::Plan& plan) {
  int least = std::numeric_limits<int>::max();
  for (const TimedOp& op : ops) {
    if (plan::has_micro_batch(op.event.op.kind)) least = std::min(least, op.event.op.micro_batch);
  }
  const auto renumber = [&](plan::Op& op) {
    if (!plan::has_micro_batch(op.kind)) return;
    op.micro_batch =
        streams(plan) ? std::max(0, op.micro_batch - least) : op.micro_batch % plan.training.micro_batches;
  };
  for (TimedOp& op : ops) renumber(op.event.op);
  for (plan::MessageEvent& message : messages) renumber(message.producer);
}

auto& event_of(auto& item) {
  if constexpr (requires { item.event; }) {
    return item.event;
  } else {
    return item;
  }
}

/// Leaves what starts at `from` or later, counted from there.
void shift_to(auto& events, Seconds from) {
  std::erase_if(events, [&](auto& item) { return event_of(item).start < from; });
  for (auto& item : events) {
    event_of(item).start -= from;
    event_of(item).end -= from;
  }
  std::ranges::stable_sort(events, {}, [](auto& item) { return event_of(item).start; });
}

/// The whole window as a simulation's result.
plan::SimulationResult result_of(const LastSteps& last, std::size_t workers) {
  plan::SimulationResult result;
  result.busy.resize(workers);
  for (const TimedOp& op : last.ops) {
    result.ops.push_back(op.event);
    result.busy[index(op.event.worker)] += op.event.end - op.event.start;
    result.makespan = std::max(result.makespan, op.event.end);
  }
  Seconds busy{};
  for (const Seconds worker : result.busy) busy += worker;
  if (result.makespan.count() > 0)
    result.bubble_fraction = 1 - busy / (static_cast<double>(workers) * result.makespan);
  result.messages = last.messages;
  return result;
}

/// `held` in parts, and what an operation needs on top of it.
plan::MemoryParts parts_of(const plan::MemoryParts& always, Bytes held, Bytes top) {
  plan::MemoryParts parts;
  Bytes left = held;
  for (const plan::MemoryPart& part : plan::kMemoryParts) {
    parts.*part.bytes = std::min(left, always.*part.bytes);
    left -= parts.*part.bytes;
  }
  parts.saved = left;
  parts.workspace = std::max(Bytes(0), top - held);
  return parts;
}

/// From `from` on, counted from there.
plan::MemoryCurve cut(const plan::MemoryCurve& curve, Seconds from) {
  plan::MemoryCurve rest;
  for (const plan::MemoryStep& step : curve) {
    if (step.time <= from) rest.assign(1, {Seconds(0), step.held});
    if (step.time > from) rest.push_back({step.time - from, step.held});
  }
  return rest;
}

}  // namespace

LastSteps last_steps(const plan::Plan& plan, std::span<const WorkerRecord* const> workers, std::int64_t range) {
  LastSteps last;
  std::int64_t end = 0;
  for (const WorkerRecord* worker : workers) {
    for (const OpRecord& op : worker->ops) end = std::max(end, op.step + 1);
  }
  const auto ops_since = [&](std::int64_t first) {
    std::size_t count = 0;
    for (const WorkerRecord* worker : workers)
      count += static_cast<std::size_t>(
          std::ranges::count_if(worker->ops, [&](const OpRecord& op) { return op.step >= first; }));
    return count;
  };
  std::int64_t shown = std::min<std::int64_t>(range, steps_to_show(plan));
  while (shown > 0 && ops_since(end - shown) > kMostOps) --shown;
  if (shown == 0) return last;
  const std::int64_t first = end - shown;
  Seconds from(std::numeric_limits<double>::max());
  for (const WorkerRecord* worker : workers) {
    for (const OpRecord& op : worker->ops) {
      if (op.step >= first) from = std::min(from, op.event.start);
    }
  }
  for (const WorkerRecord* worker : workers) {
    for (const OpRecord& op : worker->ops) last.ops.push_back({op.event, op.peak, op.held});
    for (const MessageRecord& message : worker->messages) last.messages.push_back(message.event);
  }
  shift_to(last.ops, from);
  shift_to(last.messages, from);
  renumber(last.ops, last.messages, plan);
  last.first_step = first + 1;
  last.steps = static_cast<int>(shown);
  return last;
}

Drawn measured_timeline(const LastSteps& last, std::span<const plan::MemoryParts> parts) {
  Drawn drawn{result_of(last, parts.size()), std::vector<plan::MemoryCurve>(parts.size())};
  for (std::size_t w = 0; w < parts.size(); ++w) {
    plan::MemoryCurve& curve = drawn.memory[w];
    Bytes before;
    for (const TimedOp& op : last.ops) {
      if (index(op.event.worker) != w) continue;
      if (curve.empty()) {
        before = op.held;
        curve.push_back({Seconds(0), parts_of(parts[w], before, before)});
      }
      curve.push_back({op.event.start, parts_of(parts[w], std::max(before, op.held), op.peak)});
      curve.push_back({op.event.end, parts_of(parts[w], op.held, op.held)});
      before = op.held;
    }
    if (curve.empty()) curve.push_back({});
  }
  return drawn;
}

Drawn predicted_timeline(const plan::Plan& plan, int steps) {
  const int micro_batches = plan.training.micro_batches;
  const int before = streams(plan) ? 2 * steps_to_show(plan) : 1;  // until it is steady
  plan::SimulationInput input = plan::simulation_input(plan, streams(plan) ? before + steps : 1);
  if (!streams(plan)) input = plan::chained(input, before + steps);
  const plan::SimulationResult whole = plan::simulate(input);
  Seconds from = whole.makespan;
  LastSteps last;
  for (const plan::OpEvent& op : whole.ops) {
    last.ops.push_back({op, Bytes(0), Bytes(0)});
    if (plan::has_micro_batch(op.op.kind) && op.op.micro_batch >= before * micro_batches)
      from = std::min(from, op.start);
  }
  last.messages = whole.messages;
  shift_to(last.ops, from);
  shift_to(last.messages, from);
  renumber(last.ops, last.messages, plan);
  Drawn drawn{result_of(last, plan.workers.size()), {}};
  for (const plan::MemoryCurve& curve : plan::memory_curves(input, whole))
    drawn.memory.push_back(cut(curve, from));
  return drawn;
}

}  // namespace pp::run
