#include "libplan/simulate/simulate.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "libplan/simulate/event_loop.h"
#include "libplan/simulate/lower_bound.h"
#include "libplan/simulate/memory_walk.h"
#include "libplan/simulate/op_costs.h"
#include "libprofile/core/error.h"
#include "libprofile/core/index.h"

namespace pp::plan {

namespace {

/// By start time; what starts together stays in the order of workers and their lists. Each list is in order
/// already.
std::vector<OpEvent> op_events(const ProgramIndex& index, const Timeline& timeline) {
  std::vector<int> next(index.worker_begin.begin(), index.worker_begin.end() - 1);
  const auto later = [&](int a, int b) {
    const double start_a = timeline.start[at(next[at(a)])];
    const double start_b = timeline.start[at(next[at(b)])];
    return start_a > start_b || (start_a == start_b && a > b);
  };
  std::vector<int> workers;  // a heap, the earliest head on top
  for (int w = 0; w < index.workers(); ++w) {
    if (next[at(w)] < index.worker_begin[at(w) + 1]) workers.push_back(w);
  }
  std::ranges::make_heap(workers, later);
  std::vector<OpEvent> events;
  events.reserve(index.ops.size());
  while (!workers.empty()) {
    std::ranges::pop_heap(workers, later);
    const int w = workers.back();
    const auto id = at(next[at(w)]++);
    events.push_back({WorkerId{w}, index.ops[id], Seconds(timeline.start[id]), Seconds(timeline.end[id])});
    if (next[at(w)] == index.worker_begin[at(w) + 1]) {
      workers.pop_back();
    } else {
      std::ranges::push_heap(workers, later);
    }
  }
  return events;
}

std::vector<Seconds> busy_times(const ProgramIndex& index, const Timeline& timeline) {
  std::vector<Seconds> busy(at(index.workers()));
  for (std::size_t id = 0; id < index.ops.size(); ++id) {
    busy[at(index.worker_of[id])] += Seconds(timeline.end[id] - timeline.start[id]);
  }
  return busy;
}

double makespan(const SimulationInput& input) {
  return run_event_loop(index_simulation(input), input, Messages::drop).makespan;
}

/// Places in the round robin from which a third of the stream is to be measured: one where both its ends stand
/// at the same place for every stage, else as many as the stage with most replicas has.
int starting_phases(const ProgramSet& set, int third) {
  std::size_t most = 1;
  bool aligned = true;
  for (const auto& workers : set.stage_workers) {
    most = std::max(most, workers.size());
    aligned = aligned && at(third) % workers.size() == 0;
  }
  return aligned ? 1 : std::min(third, static_cast<int>(most));
}

/// Steps of a chain, in [begin, end).
struct StepRange {
  int begin = 0, end = 0;
};

/// Where micro-batches differ in size, replicas of a stage have different work, and it takes some steps until
/// the lag between them repeats, which it may do every second or third step.
StepRange steady_steps(const SimulationInput& input) {
  const auto equal = [](const std::vector<double>& scales) {
    return std::ranges::adjacent_find(scales, std::ranges::not_equal_to()) == scales.end();
  };
  return equal(input.micro_batch_scale) && equal(input.micro_batch_bytes) ? StepRange{2, 3} : StepRange{6, 12};
}

ChainTimes chain_of(const SimulationInput& input, Messages messages) {
  if (!input.programs.synchronous) {
    throw Error(ErrorKind::internal, "chained period: the programs are asynchronous; use the steady period");
  }
  const StepRange steps = steady_steps(input);
  const SimulationInput all = chained(input, steps.end);
  return run_chain(index_simulation(all), all, steps.end, messages);
}

Seconds period_of(const SimulationInput& input, const ChainTimes& times) {
  const StepRange steps = steady_steps(input);
  const double begin = times.apart ? times.ends[at(steps.begin - 1)] : makespan(chained(input, steps.begin));
  // A less busy worker that still ends last hides some of the busiest one's work, which every further step
  // pays.
  return std::max(Seconds((times.ends.back() - begin) / (steps.end - steps.begin)), period_bound(input));
}

/// `index`: of one step.
Timeline first_step(const ProgramIndex& index, ChainTimes times) {
  const std::size_t steps = times.ends.size();
  Timeline timeline{.messages = std::move(times.timeline.messages), .makespan = times.ends.front()};
  for (int worker = 0; worker < index.workers(); ++worker) {
    const auto begin = static_cast<std::ptrdiff_t>(at(index.worker_begin[at(worker)]) * steps);
    const int count = index.worker_begin[at(worker) + 1] - index.worker_begin[at(worker)];
    for (const auto part : {&Timeline::start, &Timeline::end}) {
      const auto from = (times.timeline.*part).begin() + begin;
      (timeline.*part).insert((timeline.*part).end(), from, from + count);
    }
  }
  return timeline;
}

SimulationResult result_of(const ProgramIndex& index, const SimulationInput& input, Timeline timeline,
                           Events events) {
  SimulationResult result;
  result.makespan = Seconds(timeline.makespan);
  result.busy = busy_times(index, timeline);
  const Seconds busy = std::accumulate(result.busy.begin(), result.busy.end(), Seconds{});
  if (timeline.makespan > 0)
    result.bubble_fraction = std::max(0.0, 1 - busy / (index.workers() * result.makespan));
  if (events == Events::sorted) result.ops = op_events(index, timeline);
  result.messages = std::move(timeline.messages);
  if (events == Events::sorted && !std::ranges::is_sorted(result.messages, {}, &MessageEvent::start))
    std::ranges::stable_sort(result.messages, {}, &MessageEvent::start);
  result.memory = walk_memory(index, input);
  return result;
}

[[noreturn]] void misfit(const std::string& message) {
  throw Error(ErrorKind::internal, "simulation: " + message);
}

void check_size(const char* what, std::size_t found, std::size_t wanted) {
  if (found == wanted) return;
  misfit(std::to_string(found) + " " + what + ", expected " + std::to_string(wanted));
}

/// Sums over a worker's operations stay integers.
void check_bytes(const SimulationInput& input) {
  constexpr double kMost = 4e18;  // below 2^63 by more than what is rounded
  double scale = 1, sum = 0;
  for (const double one : input.micro_batch_scale) scale = std::max(scale, one);
  const double held = scale * (input.programs.micro_batches + 1);
  const auto add = [&](const std::string& what, double times, std::initializer_list<Bytes> parts) {
    for (const Bytes bytes : parts) sum += times * static_cast<double>(bytes.value);
    if (sum <= kMost) return;
    throw Error(ErrorKind::data, what + ": with it the stages hold and send more than 4e18 bytes in " +
                                     std::to_string(input.programs.micro_batches) +
                                     " micro-batches, which cannot be added up");
  };
  for (std::size_t s = 0; s < input.stages.size(); ++s) {
    const StageCosts& stage = input.stages[s];
    const std::string what = "stage " + std::to_string(s);
    add(what, held,
        {stage.saved, stage.again, stage.again_split, stage.input, stage.waiting.value_or(Bytes(0)),
         stage.workspace});
    add(what, double(stage.versions) + input.programs.micro_batches, {stage.weights});
    add(what, 1, {stage.gradients, stage.optimizer, stage.boundary});
  }
  for (const StageEdge& edge : input.edges) {
    add("stages " + std::to_string(number(edge.from)) + " to " + std::to_string(number(edge.to)), held,
        {edge.activation, edge.gradient});
  }
}

}  // namespace

SimulationResult simulate(const SimulationInput& input, Events events) {
  const ProgramIndex index = index_simulation(input);
  return result_of(index, input, run_event_loop(index, input, Messages::keep), events);
}

SimulationInput chained(const SimulationInput& input, int copies) {
  SimulationInput result = input;
  const int step = input.programs.micro_batches;
  result.programs.micro_batches = step * copies;
  for (std::size_t w = 0; w < input.programs.workers.size(); ++w) {
    for (int i = 1; i < copies; ++i) {
      for (Op op : input.programs.workers[w]) {
        if (has_micro_batch(op.kind)) op.micro_batch += i * step;
        result.programs.workers[w].push_back(op);
      }
    }
  }
  for (const auto scale : {&SimulationInput::micro_batch_scale, &SimulationInput::micro_batch_bytes}) {
    const std::vector<double>& one = input.*scale;
    for (int i = 1; i < copies; ++i) (result.*scale).insert((result.*scale).end(), one.begin(), one.end());
  }
  return result;
}

Seconds chained_period(const SimulationInput& input) {
  return period_of(input, chain_of(input, Messages::drop));
}

ChainedSimulation simulate_chained(const SimulationInput& input) {
  ChainTimes times = chain_of(input, Messages::keep);
  const Seconds period = period_of(input, times);
  if (!times.apart) return {simulate(input, Events::unsorted), period};
  const ProgramIndex index = index_simulation(input);
  return {result_of(index, input, first_step(index, std::move(times)), Events::unsorted), period};
}

Seconds steady_period(const SimulationInput& input) {
  const int micro_batches = input.programs.micro_batches;
  if (micro_batches < 3 || micro_batches % 3 != 0) {
    throw Error(ErrorKind::internal, "steady period: " + std::to_string(micro_batches) +
                                         " micro-batches are not a multiple of 3; expand the streams to one");
  }
  const ProgramIndex index = index_simulation(input);
  const Timeline timeline = run_event_loop(index, input, Messages::drop);
  const int third = micro_batches / 3;
  std::map<StageId, std::vector<double>> ends;  // of the stage's backwards, by micro-batch
  for (std::size_t id = 0; id < index.ops.size(); ++id) {
    const Op& op = index.ops[id];
    if (!completes_backward(op.kind)) continue;
    std::vector<double>& end = ends.try_emplace(op.stage, at(micro_batches), 0).first->second;
    end[at(op.micro_batch)] = std::max(end[at(op.micro_batch)], timeline.end[id]);
  }
  const int phases = starting_phases(input.programs, third);
  double longest = 0;
  for (auto& [stage, end] : ends) {
    std::partial_sum(end.begin(), end.end(), end.begin(), [](double a, double b) { return std::max(a, b); });
    for (int last = third - phases; last < third; ++last)
      longest = std::max(longest, end[at(last + third)] - end[at(last)]);
  }
  return Seconds(longest / third);
}

SimulationInput at_speeds(SimulationInput input, std::span<const double> speeds) {
  const ProgramIndex index = index_simulation(input);
  const OpCosts costs(index, input);
  std::vector<double> times;
  for (std::size_t id = 0; id < index.ops.size(); ++id)
    times.push_back(costs.own_time(static_cast<int>(id)) / speeds[at(index.worker_of[id])]);
  input.own_times = std::move(times);
  return input;
}

ProgramIndex index_simulation(const SimulationInput& input) {
  const ProgramSet& set = input.programs;
  if (!input.cards.empty()) check_size("cards", input.cards.size(), set.workers.size());
  if (!input.hardware.empty()) check_size("pieces of hardware", input.hardware.size(), set.workers.size());
  check_size("stage costs", input.stages.size(), set.stage_workers.size());
  for (const LinkLevel& level : input.links) {
    if (!level.groups.empty()) check_size("groups of a link", level.groups.size(), set.workers.size());
  }
  if (!input.micro_batch_scale.empty()) {
    check_size("micro-batch scales", input.micro_batch_scale.size(), at(set.micro_batches));
  }
  if (!input.micro_batch_bytes.empty()) {
    check_size("micro-batch bytes", input.micro_batch_bytes.size(), at(set.micro_batches));
  }
  if (!input.tied_all_reduce.empty()) {
    check_size("tied all-reduces", input.tied_all_reduce.size(), set.tied.size());
  }
  if (!(input.all_reduce_overlap >= 0 && input.all_reduce_overlap <= 1)) {
    misfit("all_reduce_overlap = " + std::to_string(input.all_reduce_overlap) + "; it is a share, 0 to 1");
  }
  check_bytes(input);
  std::vector<std::pair<StageId, StageId>> skips;
  for (const StageEdge& edge : input.edges) skips.emplace_back(edge.from, edge.to);
  ProgramIndex index = index_programs(set, skips);
  if (!input.own_times.empty()) check_size("times of operations", input.own_times.size(), index.ops.size());
  return index;
}

}  // namespace pp::plan
