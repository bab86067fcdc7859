#include "tests/libplan/search/cross_checks.h"

#include <cmath>
#include <map>
#include <numeric>
#include <sstream>

#include "libplan/cost/links.h"
#include "libplan/price/recompute_choice.h"
#include "libplan/request/device_orders.h"
#include "libplan/request/machine.h"
#include "libplan/simulate/lower_bound.h"
#include "libprofile/core/index.h"
#include "tests/libplan/search/drawn_problems.h"
#include "tests/libplan/search/enumerated.h"
#include "tests/libplan/search/searched.h"

namespace pp::plan::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kRounding = 1e-9;  // relative; of sums in another order

/// The fastest step over all stagings, replicas, what the request lets run again and what replicas may share;
/// infinity: nothing fits.
double best_of_all(DrawnProblem one) {
  if (one.request.shard == ShardChoice::automatic) {
    one.request.shard = ShardChoice::none;
    const double whole = best_of_all(one);
    one.request.shard = ShardChoice::optimizer;
    return std::min(whole, best_of_all(one));
  }
  const Enumerated plans(one.profile, one.cluster, one.request);
  double best = kInfinity;
  plans.for_each([&](const Assignment& plain) {
    switch (one.request.recompute) {
      case RecomputeMode::never: best = std::min(best, plans.step(plain)); break;
      case RecomputeMode::always:
        best =
            std::min(best, plans.step(with_recompute(plain, whole_stages(plain.stages(), Recompute::always))));
        break;
      case RecomputeMode::except_last:
        best = std::min(
            best, plans.step(with_recompute(plain, whole_stages(plain.stages(), Recompute::except_last))));
        break;
      case RecomputeMode::automatic:
        for_each_choice(plain.stage_layers, [&](const RecomputeChoice& choice) {
          best = std::min(best, plans.step(with_recompute(plain, choice)));
        });
    }
  });
  return best;
}

template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream stream;
  stream.precision(12);
  (stream << ... << parts);
  return stream.str();
}

std::string described(const DrawnProblem& one) {
  return text(" (", one.request.schedule, ", ", one.profile.layers.size(), " layers, ",
              one.cluster.devices.size(), " devices, ", one.request.mini_batch, " samples in ",
              *one.request.micro_batches, ", limit ",
              one.request.memory_limit ? one.request.memory_limit->value : 0, ", recompute ",
              name_of(one.request.recompute), ", shard ", name_of(one.request.shard),
              one.profile.loss ? ", loss" : "", ")");
}

/// What `found` says against the best of all.
std::string against(const SearchOutcome& found, double best, const DrawnProblem& one) {
  const double step = step_of(found);
  if (found.bound > best * (1 + kRounding))
    return text("the bound of ", found.bound, " is above a plan of ", best, described(one));
  if ((best == kInfinity) != (step == kInfinity))
    return text("the planner finds ", step, ", the best of all takes ", best, described(one));
  if (step < best * (1 - kRounding)) return text("a plan of ", step, " below all, ", best, described(one));
  return {};
}

}  // namespace

std::string check_certificate(Random& random) {
  DrawnProblem one = draw_problem(random, 4);
  constexpr std::array kModes{RecomputeMode::never, RecomputeMode::never, RecomputeMode::always,
                              RecomputeMode::except_last};
  one.request.recompute = kModes[at(random.integer(0, 3))];
  constexpr std::array kShards{ShardChoice::none, ShardChoice::optimizer, ShardChoice::automatic};
  one.request.shard = kShards[at(random.integer(0, 2))];
  if (!require_schedule(one.request.schedule).synchronous) {
    one.request.recompute = RecomputeMode::never;
    one.request.shard = ShardChoice::none;
  }
  return against(searched(one.profile, one.cluster, one.request), best_of_all(one), one);
}

std::string check_pair(Random& random) {
  DrawnProblem one = draw_problem(random, 4);
  const bool synchronous = require_schedule(one.request.schedule).synchronous;
  std::vector<std::string> names;
  for (const ScheduleRow& row : schedule_table()) {
    if (row.synchronous == synchronous && row.no_plan.empty() && row.source == ProgramSource::generator &&
        row.rules != RuleSet::swapped)
      names.emplace_back(row.name);
  }
  one.request.window.reset();
  // A wider window may then be faster, which is looked for only beside the best.
  for (OptimizerProfile& optimizer : one.profile.optimizers) optimizer.new_version.reset();
  const auto planned = [&](const std::string& schedule) -> std::optional<SearchOutcome> {
    one.request.schedule = schedule;
    try {
      return searched(one.profile, one.cluster, one.request);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::usage) throw;
      return std::nullopt;
    }
  };
  const std::string first = names[at(random.integer(0, static_cast<int>(names.size()) - 1))];
  const std::string second = names[at(random.integer(0, static_cast<int>(names.size()) - 1))];
  const auto a = planned(first), b = planned(second);
  if (!a || !b || first == second) return {};
  const auto both = planned(first + "," + second);
  if (!both) return text(first, ",", second, " is refused", described(one));
  // Ranked: one that holds more micro-batches than 1F1B is known for must gain 1 %.
  const auto ranked = [](const SearchOutcome& found) {
    return found.ranked.empty() ? kInfinity : found.ranked.front().ranked_step();
  };
  const double step = std::min(ranked(*a), ranked(*b));
  // It may be faster: searches that both have go as far as the slower of the two needs.
  if (ranked(*both) > step * (1 + kRounding))
    return text("together ", ranked(*both), ", the better alone ", step, described(one));
  // One without plans has none to compare with, and its bound may not know that nothing fits.
  const auto bound_of = [](const SearchOutcome& found) {
    return found.ranked.empty() ? kInfinity : found.bound;
  };
  const double most = std::min(bound_of(*a), bound_of(*b)), least = std::min(a->bound, b->bound);
  if (both->bound > most * (1 + kRounding) || (both->bound < least * (1 - kRounding) && most < kInfinity))
    return text("bound ", both->bound, " of ", step, ", alone ", a->bound, " of ", step_of(*a), " and ",
                b->bound, " of ", step_of(*b), described(one));
  return {};
}

std::string check_one_price(Random& random) {
  DrawnProblem one = draw_problem(random, 4);
  one.request.memory_limit.reset();
  const PlanGraph graph = make_graph(one.profile);
  const PricedModel model =
      price_model(one.profile, micro_batch_sizes(one.request.mini_batch, *one.request.micro_batches), {});
  const OptimizerCost optimizer = optimizer_cost(one.profile, one.request.optimizer, {}, Precision::plain);
  const PricingContext context{graph, model, one.cluster, optimizer};
  const std::vector<std::vector<int>> orders = drawn_orders(graph, 8);
  const std::vector<int>& order = orders[at(random.integer(0, static_cast<int>(orders.size()) - 1))];
  const Chain chain = make_chain(graph, order, model.layers, model.loss, optimizer);
  const ChainUnits units(graph, model.layers, order);
  const ScheduleRow& row = require_schedule(one.request.schedule);
  InFlight in_flight = in_flight_of(row, one.request, *one.request.micro_batches);
  in_flight.batch = model.batch;
  in_flight.units = &units;
  constexpr std::array kModes{RecomputeMode::never, RecomputeMode::always, RecomputeMode::except_last};
  const int modes = row.rules == RuleSet::clocked ? 1 : row.synchronous ? 3 : 2;
  in_flight.recompute = kModes[at(random.integer(0, modes - 1))];
  in_flight.stages = static_cast<int>(one.cluster.devices.size());
  const StageMemory memory(chain, in_flight, {.in = HandOver::reference, .out = HandOver::reference});
  std::string wrong;
  Enumerated(one.profile, one.cluster, one.request).for_each([&](const Assignment& plain) {
    Partition partition;
    for (std::size_t s = 0; s < plain.stage_layers.size(); ++s) {
      const std::vector<int>& layers = plain.stage_layers[s];
      const int begin = partition.empty() ? 0 : partition.back().end,
                end = begin + static_cast<int>(layers.size());
      if (!std::is_permutation(layers.begin(), layers.end(), order.begin() + begin))
        return;  // not of this order
      partition.push_back({begin, end, static_cast<int>(plain.stage_workers[s].size())});
    }
    const bool again = in_flight.recompute != RecomputeMode::never;
    const Recompute which =
        in_flight.recompute == RecomputeMode::always ? Recompute::always : Recompute::except_last;
    const Assignment assignment = again ? with_recompute(plain, whole_stages(plain.stages(), which)) : plain;
    const Prediction found = simulate_prediction(price_stages(context, assignment), assignment, context);
    const std::vector<StageBytes> parts = memory.stages(partition);
    for (std::size_t s = 0; s < parts.size(); ++s) {
      std::int64_t peak = 0;
      for (const int worker : assignment.stage_workers[s])
        peak = std::max(peak, found.workers[at(worker)].memory.peak.value);
      if (peak > parts[s].total())
        wrong = text("stage ", s, ": the simulator holds ", peak, ", the search ", parts[s].total(),
                     described(one));
      const StageCosts& costs = found.stages[s];
      if (again || parts[s].smaller > 0) continue;  // whose peak may be that of smaller ones
      if (costs.saved.value != parts[s].saved + parts[s].again)
        wrong = text("stage ", s, ": saved ", costs.saved.value, " and ", parts[s].saved, described(one));
      if (costs.input.value != parts[s].input)
        wrong = text("stage ", s, ": input ", costs.input.value, " and ", parts[s].input, described(one));
      if (costs.workspace.value != parts[s].workspace)
        wrong = text("stage ", s, ": workspace ", costs.workspace.value, " and ", parts[s].workspace,
                     described(one));
    }
  });
  return wrong;
}

std::string check_stopped(Random& random) {
  DrawnProblem one = draw_problem(random, 4);
  const double best = best_of_all(one);
  int calls = 0;
  one.request.observer = [&](const SearchProgress&) { return ++calls, true; };
  searched(one.profile, one.cluster, one.request);
  const int all = calls;
  const int stop = random.integer(1, std::max(1, all));
  calls = 0;
  one.request.observer = [&](const SearchProgress&) { return ++calls < stop; };
  const SearchOutcome found = searched(one.profile, one.cluster, one.request);
  if (found.bound > best * (1 + kRounding))
    return text("stopped at look ", stop, " of ", all, ": the bound of ", found.bound, " is above a plan of ",
                best, described(one));
  if (best == kInfinity && !found.ranked.empty()) return "stopped: a plan where nothing fits" + described(one);
  return {};
}

std::string check_conservation(Random& random) {
  const DrawnProblem one = draw_problem(random, 4);
  const Enumerated plans(one.profile, one.cluster, one.request);
  std::vector<Assignment> all;
  plans.for_each([&](const Assignment& plan) { all.push_back(plan); });
  const SimulationInput input = plans.input(all[at(random.integer(0, static_cast<int>(all.size()) - 1))]);
  const SimulationResult result = simulate(input);
  std::map<std::pair<WorkerId, bool>, std::vector<const MessageEvent*>> ports;
  for (const MessageEvent& message : result.messages) {
    if (message.bytes == Bytes(0)) continue;  // takes no time of a port
    ports[{message.from, true}].push_back(&message);
    ports[{message.to, false}].push_back(&message);
  }
  for (auto& [port, messages] : ports) {
    std::ranges::sort(messages, {}, [](const MessageEvent* message) { return message->start; });
    double bytes = 0;
    for (std::size_t i = 0; i < messages.size(); ++i) {
      bytes += static_cast<double>(messages[i]->bytes.value);
      if (i > 0 && messages[i]->start.count() < messages[i - 1]->end.count() - 1e-12) {
        return text("two messages at one port at the same time, until ", messages[i - 1]->end.count(),
                    " and from ", messages[i]->start.count(), described(one));
      }
    }
    if (bytes / 1e9 > result.makespan.count() * (1 + kRounding))
      return text(bytes, " bytes over one port of 1 GB/s within ", result.makespan.count(), " s",
                  described(one));
  }
  return {};
}

std::string check_parts(Random& random) {
  const int all = random.integer(2, 9), part = random.integer(2, all);
  Cluster cluster = make_cluster(all);
  Level& level = cluster.levels.front();
  level.all_reduce = MeasuredAllReduce{
      BytesPerSecond(1e8 * random.integer(1, 20)), Seconds(1e-3 * random.integer(0, 5)),       0, {}, 0,
      Bytes(random.integer(0, 1) * kMb),           BytesPerSecond(1e7 * random.integer(1, 20))};
  std::vector<int> devices(at(random.integer(2, part)));
  std::iota(devices.begin(), devices.end(), 0);
  const Bytes bytes(random.integer(0, 20) * kMb / 4);
  const double whole = all_reduce_time(cluster, devices, bytes).count();
  const double alone = all_reduce_time(first_devices(cluster, part), devices, bytes).count();
  const Cluster grown = first_devices(with_one_more_device(cluster), all);
  const double more = all_reduce_time(grown, devices, bytes).count();
  if (std::abs(whole - alone) > kRounding * whole || std::abs(whole - more) > kRounding * whole)
    return text("all-reduce of ", bytes.value, " bytes over ", devices.size(), " of ", all, " devices: ", whole,
                " s, on a machine of ", part, " ", alone, " s, with one more ", more, " s");
  return {};
}

std::string check_recompute(Random& random) {
  DrawnProblem one = draw_problem(random, 3);
  one.request.schedule = random.integer(0, 1) == 0 ? "gpipe" : "1f1b";
  one.request.window.reset();
  if (one.request.schedule == "1f1b") one.request.window = WindowRule::win;
  one.request.recompute = RecomputeMode::automatic;
  one.request.memory_limit = Bytes(random.integer(4, 50) * kMb);
  return against(searched(one.profile, one.cluster, one.request), best_of_all(one), one);
}

std::string check_steady(Random& random) {
  const DrawnProblem one = draw_problem(random, 4);
  if (!require_schedule(one.request.schedule).synchronous) return {};
  const Enumerated plans(one.profile, one.cluster, one.request);
  std::vector<Assignment> all;
  plans.for_each([&](const Assignment& plan) { all.push_back(plan); });
  const SimulationInput input = plans.input(all[at(random.integer(0, static_cast<int>(all.size()) - 1))]);
  const double early = chained_period(input).count();
  const double late =
      (simulate(chained(input, 36)).makespan.count() - simulate(chained(input, 12)).makespan.count()) / 24;
  if (early < period_bound(input).count() * (1 - kRounding))
    return text("period ", early, " below the busiest worker's ", period_bound(input).count(), described(one));
  constexpr double kLateLags = 0.05;  // relative: some take more than twelve steps to build up
  if (early < late * (1 - kLateLags)) return text("period ", early, ", after 12 steps ", late, described(one));
  return {};
}

std::string check_arithmetic(Random& random) {
  DrawnProblem one = draw_problem(random, 4);
  PlanRequest& request = one.request;
  request.schedule = random.integer(0, 1) == 0 ? "gpipe" : "1f1b";
  request.memory_limit.reset();
  request.mini_batch = 2 * *request.micro_batches;  // of two samples each
  one.profile = draw_profile(random, random.integer(1, 4), false);
  one.profile.optimizers.clear();
  for (LayerProfile& layer : one.profile.layers) {
    layer.parameters = Bytes(0);
    for (LayerPoint& point : layer.points) point.output = point.saved_input = point.workspace = Bytes(0);
  }
  const Enumerated plans(one.profile, one.cluster, request);
  std::vector<Assignment> all;
  plans.for_each([&](const Assignment& plan) { all.push_back(plan); });
  const Assignment& plan = all[at(random.integer(0, static_cast<int>(all.size()) - 1))];

  // Of each stage the point of two samples, added up; without bytes to send nothing delays a message.
  std::vector<double> forward(at(plan.stages()), 0), backward(forward);
  std::vector<std::int64_t> saved(at(plan.stages()), 0);
  const auto add = [&](int stage, const LayerProfile& layer) {
    forward[at(stage)] += layer.points[1].forward.median.count();
    backward[at(stage)] += layer.points[1].backward.median.count();
    saved[at(stage)] += layer.points[1].saved.value;
  };
  for (int s = 0; s < plan.stages(); ++s) {
    for (const int layer : plan.stage_layers[at(s)]) add(s, one.profile.layers[at(layer)]);
  }
  if (one.profile.loss) add(plan.stages() - 1, *one.profile.loss);

  std::map<std::tuple<bool, int, int>, double> ends;  // backward, stage, micro-batch
  std::size_t done = 0;
  do {  // until nothing new can be run
    done = ends.size();
    for (const WorkerProgram& worker : plan.programs) {
      double now = 0;
      for (const Op& op : worker.program) {
        if (op.kind != OpKind::forward && op.kind != OpKind::backward) continue;
        const int s = number(op.stage);
        const bool back = op.kind == OpKind::backward;
        const int from = back ? s + 1 : s - 1;
        const bool waits = from >= 0 && from < plan.stages();
        const auto before = ends.find({back, from, op.micro_batch});
        if (waits && before == ends.end()) break;
        now = std::max(now, waits ? before->second : 0) + (back ? backward : forward)[at(s)];
        ends[{back, s, op.micro_batch}] = now;
      }
    }
  } while (ends.size() > done);
  double makespan = 0;
  for (const auto& [op, end] : ends) makespan = std::max(makespan, end);
  const SimulationResult found = simulate(plans.input(plan));
  if (std::abs(found.makespan.count() - makespan) > kRounding * makespan)
    return text("a step of ", makespan, " is simulated as ", found.makespan.count(), described(one));

  for (std::size_t w = 0; w < plan.programs.size(); ++w) {
    std::int64_t held = 0, peak = 0;
    for (const Op& op : plan.programs[w].program) {
      if (op.kind == OpKind::forward) peak = std::max(peak, held += saved[index(op.stage)]);
      if (op.kind == OpKind::backward) held -= saved[index(op.stage)];
    }
    if (found.memory[w].peak.value != peak)
      return text("worker ", w, " holds ", peak, ", simulated ", found.memory[w].peak.value, described(one));
  }
  return {};
}

}  // namespace pp::plan::test
