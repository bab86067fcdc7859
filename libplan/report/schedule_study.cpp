#include "libplan/report/schedule_study.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "libplan/schedule/closed_forms.h"
#include "libplan/schedule/generators.h"
#include "libplan/schedule/validate.h"
#include "libplan/search/zero_bubble/auto_zero_bubble.h"
#include "libplan/simulate/lower_bound.h"
#include "libprofile/core/error.h"

namespace pp::plan {
namespace {

[[noreturn]] void refuse_cost(std::string_view part, const std::string& message) {
  throw Error(ErrorKind::usage, "costs: \"" + std::string(part) + "\" " + message);
}

double parse_time(std::string_view part, std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  constexpr double kLongest = 1e15;  // sums over all operations stay finite and exact enough to print
  if (error != std::errc{} || end != text.data() + text.size() || !(value >= 0 && value <= kLongest))
    refuse_cost(part, "needs a time from 0 to 1e15 behind the equals sign, as in F=1.5");
  return value;
}

void set_cost(ShareCosts& costs, std::string_view part) {
  const std::size_t equals = std::min(part.find('='), part.size());
  const std::string_view key = part.substr(0, equals);
  const double value = parse_time(part, part.substr(std::min(equals + 1, part.size())));
  if (key == "F")
    costs.forward = value;
  else if (key == "I")
    costs.input_gradient = value;
  else if (key == "W")
    costs.weight_gradient = value;
  else if (key == "B")
    costs.backward = value;
  else if (key == "R")
    costs.recompute = value;
  else if (key == "AR")
    costs.all_reduce = value;
  else if (key == "U")
    costs.update = value;
  else if (key == "L")
    costs.load = value;
  else if (key == "E")
    costs.evict = value;
  else if (key == "comm")
    costs.communication = value;
  else
    refuse_cost(part, "is unknown; use F, I, W, B, R, AR, U, L, E or comm");
}

StageCosts stage_costs(const ShareCosts& costs, int chunks) {
  const auto part = [&](double share) { return Seconds(share / chunks); };
  StageCosts stage;
  stage.forward = part(costs.forward);
  stage.input_gradient = part(costs.input_gradient);
  stage.weight_gradient = part(costs.weight_gradient);
  stage.backward = part(costs.backward.value_or(costs.input_gradient + costs.weight_gradient));
  stage.recompute = part(costs.recompute.value_or(costs.forward));
  stage.all_reduce = part(costs.all_reduce);
  stage.update = part(costs.update);
  stage.load = part(costs.load);
  stage.evict = part(costs.evict);
  return stage;
}

void check_workers(std::int64_t workers) {
  if (workers <= kWorkerLimit) return;
  throw Error(ErrorKind::usage, std::to_string(workers) + " workers exceed the limit of " +
                                    std::to_string(kWorkerLimit) + " that can be simulated");
}

SimulationInput make_input(ProgramSet programs, const ShareCosts& costs, int chunks) {
  SimulationInput input;
  input.stages.assign(programs.stage_workers.size(), stage_costs(costs, chunks));
  const Link link{BytesPerSecond(0), Seconds(costs.communication)};
  check_workers(std::ssize(programs.workers));
  input.links = {{link}};
  input.programs = std::move(programs);
  return input;
}

/// Most stages on one worker, of programs written elsewhere.
int chunks_of(const ProgramSet& set) {
  std::vector<int> stages(set.workers.size(), 0);
  for (const auto& workers : set.stage_workers) {
    if (workers.size() == 1) ++stages[index(workers.front())];
  }
  return std::max(1, *std::ranges::max_element(stages));
}

/// The pipeline that the search orders: one stage per worker.
ZeroBubbleRequest search_request(const ScheduleStudy& study) {
  const ScheduleRequest& request = study.request;
  ProgramSet programs;
  programs.stage_workers = replicated_placement(request.replicas);
  programs.workers.resize(request.replicas.size());
  programs.micro_batches = request.micro_batches;
  ZeroBubbleRequest search;
  search.pipeline = make_input(std::move(programs), study.costs, 1);
  search.in_flight_limit = study.in_flight_limits;
  if (search.in_flight_limit.size() == 1)
    search.in_flight_limit.resize(request.replicas.size(), search.in_flight_limit[0]);
  return search;
}

ProgramSet programs_of(const ScheduleStudy& study, std::string& search) {
  if (study.programs) return *study.programs;
  check_size(study.request, std::max(study.request.micro_batches, study.stream_length));
  const ScheduleRow& row = require_schedule(study.request.name);
  if (row.source != ProgramSource::search) {
    ScheduleRequest request = study.request;
    if (row.limited) request.in_flight_limits = study.in_flight_limits;
    return program_set(request, study.stream_length);
  }
  ZeroBubbleResult found = search_zero_bubble(search_request(study));
  search = found.how;
  return std::move(found.programs);
}

/// A stream long enough for the middle third to be steady, of a length that steady_period() takes.
Seconds stream_period(const ScheduleStudy& study) {
  const ScheduleRequest& request = study.request;
  const int stages = static_cast<int>(request.replicas.size());
  constexpr int kMostOperations = 200'000;
  const int most = kMostOperations / (3 * 2 * stages);
  const int round = stream_round(request.replicas, request.micro_batches, most);
  const bool clocked = is_clocked(request);
  const int length =
      clocked
          ? std::max(192, static_cast<int>(clocked_steps(request))) - (stages - 1)  // more steps than frames
          : 3 * round * std::min(std::max(4 * stages, 64 / round + 1), std::max(1, most / round));
  const Schedule schedule = make_schedule(request);
  ProgramSet set = program_set(request, schedule, length);
  for (std::size_t w = 0; w < set.workers.size() && !clocked; ++w)
    set.workers[w] = expand_stretch(*schedule.workers[w].stream, length);
  return steady_period(make_input(std::move(set), study.costs, 1));
}

std::optional<Seconds> period_of(const ScheduleStudy& study, const SimulationInput& input) {
  if (input.programs.tokens.groups > 0) return std::nullopt;
  return input.programs.synchronous ? chained_period(input) : stream_period(study);
}

}  // namespace

ShareCosts parse_share_costs(std::string_view text) {
  ShareCosts costs;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    set_cost(costs, text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return costs;
}

ScheduleFigures study_schedule(const ScheduleStudy& study) {
  ScheduleFigures figures;
  ProgramSet programs = programs_of(study, figures.search);
  programs.recompute_start = study.recompute_start;
  validate(programs);
  const int chunks = study.programs ? chunks_of(*study.programs) : chunks_of(study.request);
  figures.chunks_per_worker = chunks;
  if (!study.in_flight_limits.empty()) {
    const std::vector<double> limits(study.in_flight_limits.begin(), study.in_flight_limits.end());
    check_in_flight(programs, limits, chunks);
  }
  for (const Program& program : programs.workers)
    figures.peak_in_flight.push_back(peak_in_flight(program, chunks));
  figures.input = make_input(std::move(programs), study.costs, chunks);
  figures.result = simulate(figures.input);
  figures.steady_period = period_of(study, figures.input);
  figures.makespan_bound =
      std::min(makespan_bound(figures.input), figures.result.makespan);  // sums round differently
  return figures;
}

}  // namespace pp::plan
