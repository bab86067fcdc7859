#include "libplan/search/finalists.h"

#include "libplan/search/ordered_candidates.h"
#include "libplan/search/placed.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <tuple>

namespace pp::plan {
namespace {

constexpr std::size_t kSimulated = 64;  ///< per schedule
constexpr std::size_t kPlaced =
    4;  ///< per placed schedule and number of workers: each is improved by simulation

/// Device counts to search: fewer devices can simulate better than the objective says, and every count that a
/// smaller cluster would have had keeps larger clusters from doing worse.
std::vector<SearchSpace> prefixes(const SearchSpace& space) {
  constexpr int kAllUpTo = 8;
  std::vector<SearchSpace> spaces;
  int least = space.exact_stages;
  for (const int count : space.replicas) least += count - 1;
  for (int devices = 1; devices < space.devices; ++devices) {
    const bool power = (devices & (devices - 1)) == 0;
    if (devices < least || (space.devices > kAllUpTo && !power)) continue;
    spaces.push_back(space);
    spaces.back().devices = devices;
    spaces.back().max_replicas = std::min(devices, space.max_replicas);
  }
  spaces.push_back(space);
  return spaces;
}

/// Each stage's layers in file order.
std::vector<std::vector<int>> stage_layers(const Partition& partition, const std::vector<int>& order) {
  std::vector<std::vector<int>> stages;
  for (const auto& [begin, end, replicas] : partition) {
    stages.emplace_back(order.begin() + begin, order.begin() + end);
    std::sort(stages.back().begin(), stages.back().end());
  }
  return stages;
}

Assignment assign(const Finalist& finalist, const PlanRequest& request) {
  Assignment assignment;
  assignment.stage_layers = stage_layers(finalist.partition, finalist.order);
  int worker = 0;
  for (const StageRange& stage : finalist.partition) {
    auto& workers = assignment.stage_workers.emplace_back();
    for (int q = 0; q < stage.replicas; ++q) workers.push_back(worker++);
  }
  assignment.worker_devices.assign(finalist.devices.begin(), finalist.devices.begin() + worker);
  assignment.micro_batches = finalist.batch.micro_batches;
  assignment.synchronous = finalist.schedule->synchronous;
  assignment.programs = make_schedule({.name = std::string(finalist.schedule->name),
                                       .replicas = replicas_of(finalist.partition),
                                       .micro_batches = finalist.batch.micro_batches,
                                       .window = request.window,
                                       .windows = request.windows})
                            .workers;
  return assignment;
}

auto rank(const Finalist& finalist) {
  return std::tuple(finalist.rounded_step(), finalist.workers(), finalist.partition.size(), finalist.peak(),
                    std::string(finalist.schedule->name), stages_text(finalist.partition),
                    replicas_text(finalist.partition), finalist.batch.micro_batches,
                    finalist.assignment.stage_layers, finalist.devices);
}

/// The best by estimate of each schedule; different orders often give the same stages.
std::vector<Finalist> shortlist(std::vector<Finalist> all, const PlanRequest& request) {
  std::stable_sort(all.begin(), all.end(), [](const Finalist& a, const Finalist& b) {
    return std::tuple(a.estimate, device_count(a.partition)) <
           std::tuple(b.estimate, device_count(b.partition));
  });
  using Identity =
      std::tuple<std::string, int, std::vector<std::vector<int>>, std::vector<int>, std::vector<int>>;
  std::set<Identity> known;
  // By schedule; of placed ones by workers too: few workers with room for memory may beat many by simulation
  // alone.
  std::map<std::pair<std::string, int>, std::size_t> kept;
  std::vector<Finalist> best;
  for (Finalist& finalist : all) {
    const std::string name(finalist.schedule->name);
    const bool baseline = finalist.partition.size() == 1;
    std::size_t& count = kept[{name, finalist.placed ? finalist.workers() : 0}];
    if (count >= (finalist.placed ? kPlaced : kSimulated) && !baseline) continue;
    if (!known
             .emplace(name, finalist.batch.micro_batches, stage_layers(finalist.partition, finalist.order),
                      replicas_of(finalist.partition), finalist.devices)
             .second) {
      continue;
    }
    ++count;
    if (!finalist.placed) finalist.assignment = assign(finalist, request);
    best.push_back(std::move(finalist));
  }
  return best;
}

void simulate_all(std::vector<Finalist>& finalists, const Profile& profile, const Cluster& cluster,
                  const PlanGraph& graph, const PlanRequest& request) {
  const CurveOptions curve{request.extrapolate, request.linear_batch};
  const OptimizerCost optimizer = optimizer_cost(profile, request.optimizer, request.optimizer_state_ratio);
  std::map<int, PricedModel> models;
  for (Finalist& finalist : finalists) {
    const int count = finalist.batch.micro_batches;
    if (!models.contains(count)) models.emplace(count, price_model(profile, finalist.batch.sizes, curve));
    const PricingContext context{graph, models.at(count), cluster, optimizer, request.all_reduce_overlap};
    if (finalist.placed) {
      settle_placed(finalist, context, request);
    } else {
      finalist.prediction =
          simulate_prediction(price_stages(context, finalist.assignment), finalist.assignment, context);
    }
  }
}

}  // namespace

std::int64_t Finalist::peak() const {
  std::int64_t peak = 0;
  for (const WorkerPrediction& worker : prediction.workers) peak = std::max(peak, worker.memory.peak.value);
  return peak;
}

double Finalist::rounded_step() const {
  constexpr int kBits = 36;
  int exponent = 0;
  const double mantissa = std::frexp(prediction.step.count(), &exponent);
  return std::ldexp(std::round(std::ldexp(mantissa, kBits)), exponent - kBits);
}

SearchOutcome search_and_price(const Profile& profile, const Cluster& cluster, const PlanGraph& graph,
                               const PlanRequest& request) {
  SearchOutcome outcome;
  outcome.bound = std::numeric_limits<double>::infinity();
  std::set<std::string_view> orders;
  std::set<std::string_view> schedules;
  std::set<int> batches;
  std::vector<Finalist> all;
  CandidateList list;
  std::vector<OrderedCandidate> ordered;
  for_each_case(profile, cluster, graph, request, [&](const PlanCase& one) {
    orders.insert(one.order.name);
    schedules.insert(one.schedule.name);
    batches.insert(one.batch.micro_batches);
    if (is_placed(one.schedule)) {
      std::vector<Finalist> placed = placed_finalists(one, cluster, request, outcome.bound);
      std::ranges::move(placed, std::back_inserter(all));
      return;
    }
    const StageMemory memory(one.chain, one.in_flight, one.devices.limit);
    const SearchCase what = search_case(one, memory, cluster, request);
    if (one.first_schedule || what.limited) {
      list = find_candidates(what, prefixes(one.space));
      list.bound = ordered_bound(one, cluster, request, list.bound);
      ordered = ordered_candidates(one, cluster, request, prefixes(one.space));
    }
    outcome.bound = std::min(outcome.bound, list.bound);
    const auto add = [&](const Partition& partition, const std::vector<int>& devices, double estimate) {
      all.push_back({partition, one.order.layers, one.batch, &one.schedule, devices, {}, estimate, {}, {}});
    };
    for (const Candidate& candidate : list.candidates)
      add(candidate.partition, worker_positions(one, cluster, request, candidate.partition),
          candidate.estimate);
    for (const OrderedCandidate& candidate : ordered)
      add(candidate.partition, candidate.devices, candidate.estimate);
  });
  outcome.orders = static_cast<int>(orders.size());
  outcome.batches = static_cast<int>(batches.size());
  outcome.schedules = static_cast<int>(schedules.size());
  outcome.candidates = static_cast<int>(all.size());
  outcome.ranked = shortlist(std::move(all), request);
  simulate_all(outcome.ranked, profile, cluster, graph, request);
  for (const Finalist& finalist : outcome.ranked) {
    if (finalist.placed)
      outcome.short_by = std::min(outcome.short_by.value_or(finalist.short_by), finalist.short_by);
  }
  std::erase_if(outcome.ranked, [](const Finalist& finalist) { return finalist.short_by > Bytes(0); });
  std::sort(outcome.ranked.begin(), outcome.ranked.end(),
            [](const Finalist& a, const Finalist& b) { return rank(a) < rank(b); });
  return outcome;
}

std::string stages_text(const Partition& partition) {
  std::string text;
  for (const StageRange& stage : partition) {
    text.append(text.empty() ? "" : "|").append(std::to_string(stage.end - stage.begin));
  }
  return text;
}

std::string replicas_text(const Partition& partition) {
  std::string text;
  for (const StageRange& stage : partition)
    text.append(text.empty() ? "" : "-").append(std::to_string(stage.replicas));
  return text;
}

}  // namespace pp::plan
