#include "libplan/search/zero_bubble/pipeline.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "libplan/simulate/op_costs.h"
#include "libplan/simulate/simulate.h"
#include "libprofile/core/index.h"

namespace pp::plan {

namespace {

double sum(const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

void add_inlet(std::vector<Inlet>& inlets, int from, int micro_batches, int micro_batch, double delay) {
  auto inlet = std::ranges::find(inlets, at(from), &Inlet::from);
  if (inlet == inlets.end()) {
    inlets.push_back({at(from), std::vector<double>(at(micro_batches))});
    inlet = inlets.end() - 1;
  }
  inlet->delay[at(micro_batch)] = delay;
}

/// Least seconds from the first F of a worker to the last W of the same step.
double least_span(const StageTimes& times, const std::vector<double>& round_trip, const Room& room) {
  const int count = static_cast<int>(room.size());
  const auto first_input = [&](int m) { return times.forward[at(m)] + round_trip[at(m)]; };
  const double fill = std::accumulate(times.forward.begin(), times.forward.begin() + room.front(), 0.0);
  double span = sum(times.forward) + sum(times.input_gradient) + sum(times.weight_gradient) +
                std::max(0.0, first_input(0) - fill);
  double waited = 0;  // F(m) cannot start earlier after F(0): it needs the room that W of the one before frees
  for (int m = 0; m < count; m = room[at(m)]) {
    double left = 0;
    for (int later = m; later < count; ++later) {
      left += times.input_gradient[at(later)] + times.weight_gradient[at(later)];
    }
    span = std::max(span, waited + first_input(m) + left);
    waited += first_input(m) + times.input_gradient[at(m)] + times.weight_gradient[at(m)];
  }
  return span;
}

}  // namespace

const std::vector<double>& StageTimes::of(OpKind kind) const {
  return kind == OpKind::forward ? forward : kind == OpKind::input_gradient ? input_gradient : weight_gradient;
}

Pipeline make_pipeline(const SimulationInput& input) {
  const ProgramIndex index = index_simulation(input);
  const OpCosts costs(index, input);
  Pipeline pipeline{index.micro_batches, std::vector<StageTimes>(at(index.stages))};
  for (StageTimes& stage : pipeline.stages) {
    stage.forward = stage.input_gradient = stage.weight_gradient = std::vector<double>(at(index.micro_batches));
  }
  for (int id = 0; id < static_cast<int>(index.ops.size()); ++id) {
    const Op& op = index.ops[at(id)];
    StageTimes& stage = pipeline.stages[pp::index(op.stage)];
    const double duration = costs.duration(id);
    const bool forward = op.kind == OpKind::forward;
    if (forward) {
      stage.forward[at(op.micro_batch)] = duration;
    } else if (op.kind == OpKind::input_gradient) {
      stage.input_gradient[at(op.micro_batch)] = duration;
    } else if (op.kind == OpKind::weight_gradient) {
      stage.weight_gradient[at(op.micro_batch)] = duration;
    } else {
      stage.update = duration;
    }
    index.for_each_producer(id, [&](int producer, int edge) {
      if (edge == kNone) return;
      add_inlet(forward ? stage.activations : stage.gradients, number(index.ops[at(producer)].stage),
                index.micro_batches, op.micro_batch, costs.free_transfer(producer, id, edge));
    });
  }
  return pipeline;
}

std::vector<std::vector<double>> round_trips(const Pipeline& pipeline) {
  std::vector<std::vector<double>> result(pipeline.stages.size(),
                                          std::vector<double>(at(pipeline.micro_batches), 0.0));
  for (std::size_t to = pipeline.stages.size(); to-- > 0;) {  // its own round trip is complete by now
    const StageTimes& later = pipeline.stages[to];
    for (const Inlet& activation : later.activations) {
      const auto& gradients = pipeline.stages[activation.from].gradients;
      const auto gradient = std::ranges::find(gradients, to, &Inlet::from);
      for (std::size_t m = 0; m < result[to].size(); ++m) {
        double& trip = result[activation.from][m];
        trip = std::max(trip, activation.delay[m] + later.forward[m] + result[to][m] + later.input_gradient[m] +
                                  gradient->delay[m]);
      }
    }
  }
  return result;
}

OrderBounds order_bounds(const Pipeline& pipeline, const std::vector<Room>& rooms) {
  const auto trips = round_trips(pipeline);
  std::vector<double> first_end(rooms.size(), 0.0);  // of F(s,0)
  OrderBounds bounds;
  for (std::size_t s = 0; s < rooms.size(); ++s) {
    const StageTimes& stage = pipeline.stages[s];
    double head = 0;
    for (const Inlet& inlet : stage.activations) head = std::max(head, first_end[inlet.from] + inlet.delay[0]);
    first_end[s] = head + stage.forward[0];
    const double span = least_span(stage, trips[s], rooms[s]) + stage.update;
    bounds.period = std::max(bounds.period, span);
    bounds.makespan = std::max(bounds.makespan, head + span);
  }
  return bounds;
}

bool is_valid(const WorkerOrder& order, const Room& room) {
  std::size_t forwards = 0;
  std::size_t inputs = 0;
  std::size_t weights = 0;
  for (const OpKind kind : order) {
    if (kind == OpKind::forward) {
      if (weights == room.size() || static_cast<int>(++forwards) > room[weights]) return false;
    } else if (kind == OpKind::input_gradient) {
      if (++inputs > forwards) return false;
    } else if (++weights > inputs) {
      return false;
    }
  }
  return true;
}

WorkerOrder apply(const HandRule& rule, const Room& room) {
  const int count = static_cast<int>(room.size());
  WorkerOrder order;
  int forwards = 0;
  int weights = 0;
  const auto has_room = [&] { return forwards < count && forwards < room[at(weights)]; };
  const auto run_weight = [&] {
    order.push_back(OpKind::weight_gradient);
    ++weights;
  };
  const auto run_forward = [&] {
    order.push_back(OpKind::forward);
    ++forwards;
  };
  while (forwards < rule.window && has_room()) run_forward();
  for (int inputs = 1; inputs <= count; ++inputs) {
    order.push_back(OpKind::input_gradient);
    if (inputs > rule.weight_delay && weights < inputs) run_weight();
    if (forwards == count) continue;
    while (!has_room() && weights < inputs) run_weight();
    if (has_room()) run_forward();
  }
  while (weights < count) run_weight();
  return order;
}

ProgramSet to_programs(const Order& order, ProgramSet placement) {
  placement.workers.clear();
  for (std::size_t s = 0; s < order.size(); ++s) {
    const StageId stage{static_cast<int>(s)};
    Program& program = placement.workers.emplace_back();
    int forwards = 0;
    int inputs = 0;
    int weights = 0;
    for (const OpKind kind : order[s]) {
      int& next = kind == OpKind::forward ? forwards : kind == OpKind::input_gradient ? inputs : weights;
      program.push_back({kind, stage, next++});
    }
    program.push_back({OpKind::update, stage, 0});
  }
  return placement;
}

}  // namespace pp::plan
