#include "libplan/peers/piper.h"

#include <algorithm>

#include "libplan/peers/piper_search.h"
#include "libplan/peers/piper_stage.h"
#include "libplan/peers/set_search.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

/// The layer's least device seconds at any degree.
double least_work(const std::vector<PiperDegree>& degrees, int layer) {
  double least = std::numeric_limits<double>::infinity();
  for (const PiperDegree& degree : degrees) {
    if (degree.of(layer)) least = std::min(least, degree.degree * degree.of(layer)->plain.time.count());
  }
  return least;
}

/// `degrees` and `stage` must outlive it.
PiperProblem problem_of(const PeerInput& input, const PeerOptions& options,
                        const std::vector<PiperDegree>& degrees, PiperStage& stage) {
  PiperProblem problem;
  problem.devices = options.levels.front().devices;
  problem.micro_batches = options.micro_batches_in_batch;
  problem.degrees.clear();
  for (const PiperDegree& degree : degrees) problem.degrees.push_back(degree.degree);
  for (int layer = 0; layer < input.size(); ++layer) problem.work.push_back(least_work(degrees, layer));
  problem.take = [&](int degree, const std::vector<int>& layers) {
    return stage.take(degrees[at(degree)], layers);
  };
  problem.load = [&](int replicas, int in_flight, std::optional<double> limit) {
    return stage.load(replicas, in_flight, limit);
  };
  return problem;
}

/// The same stages by the memory that they cannot do without.
PiperProblem by_memory(PiperProblem problem, const PiperStage& stage) {
  std::ranges::fill(problem.work, 0);
  problem.load = [&](int, int in_flight, std::optional<double>) { return stage.least_memory(in_flight); };
  return problem;
}

PiperSolution best_of(const SearchedSets& searched, const PiperProblem& problem) {
  PiperSolution best;
  for (const std::vector<LayerSet>& sets : searched.chains) {
    PiperSolution found = search_piper(sets, problem);
    if (found.value < best.value) best = std::move(found);
  }
  return best;
}

Infeasible does_not_fit(double needed, double limit, int devices) {
  Infeasible none;
  none.smallest_limit = Bytes(static_cast<std::int64_t>(needed));
  none.short_by = Bytes(static_cast<std::int64_t>(needed - limit));
  none.reason = "does not fit " + std::to_string(devices) + " devices of " +
                std::to_string(static_cast<std::int64_t>(limit)) +
                " bytes, with every layer recomputed: " + std::to_string(none.short_by.value) + " bytes short";
  none.remedy = "--memory-limit " + std::to_string(none.smallest_limit->value);
  return none;
}

}  // namespace

std::variant<PeerPlan, Infeasible> plan_piper(const PeerInput& input, const PeerOptions& options) {
  const std::vector<PiperDegree> degrees = piper_degrees(input);
  const SearchedSets searched = searched_sets(input);
  PiperStage stage(input, options);
  const PiperProblem problem = problem_of(input, options, degrees, stage);
  const PiperSolution found = best_of(searched, problem);
  if (found.stages.empty()) {
    const double needed = best_of(searched, by_memory(problem, stage)).value;
    return does_not_fit(needed, input.memory_limit(options), problem.devices);
  }
  PeerPlan plan = empty_plan(input, options);
  double total = 0;
  for (const double work : problem.work) total += work;
  for (const PiperPlanStage& each : found.stages) {
    const PiperDegree& degree = degrees[at(each.degree)];
    double compute = 0;
    for (const int layer : each.layers) compute += degree.of(layer)->plain.time.count();
    plan.stages.push_back(
        {names_of(input, each.layers), each.replicas, Seconds(compute / each.replicas), degree.degree});
  }
  plan.objective = Seconds(found.value);
  const Seconds spread(total / problem.devices);
  const bool exact = searched.every_order && options.strategy == PeerStrategy::automatic;
  plan.lower_bound = exact ? plan.objective : std::min(spread, plan.objective);
  plan.search = searched.words;
  return plan;
}

}  // namespace pp::plan
