#include "libplan/search/finalists.h"

#include "libplan/search/gather.h"
#include "libplan/search/local_improvement.h"
#include "libplan/search/placed.h"
#include "libplan/search/tied_copies.h"

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
constexpr std::int64_t kImproved = 400'000;  ///< operations simulated for local improvement: about a second

/// Each stage's layers in file order.
std::vector<std::vector<int>> stage_layers(const Partition& partition, const std::vector<int>& order) {
  std::vector<std::vector<int>> stages;
  for (const auto& [begin, end, replicas] : partition) {
    stages.emplace_back(order.begin() + begin, order.begin() + end);
    std::sort(stages.back().begin(), stages.back().end());
  }
  return stages;
}

auto rank(const Finalist& finalist) {
  return std::tuple(finalist.rounded_step(), finalist.workers(), finalist.partition.size(), finalist.peak(),
                    std::string(finalist.schedule->name), stages_text(finalist.partition),
                    replicas_text(finalist.partition), finalist.batch.micro_batches,
                    finalist.assignment.stage_layers, finalist.devices);
}

/// The best by estimate of each schedule; different orders often give the same stages.
std::vector<Finalist> shortlist(std::vector<Finalist> all, const PlanGraph& graph, const PlanRequest& request) {
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
    if (!finalist.placed) finalist.assignment = assign(finalist, graph, request);
    best.push_back(std::move(finalist));
  }
  return best;
}

/// Prices finalists; the model at each micro-batch count once.
class Pricer {
 public:
  Pricer(const Profile& profile, const Cluster& cluster, const PlanGraph& graph, const PlanRequest& request)
      : profile_(profile),
        cluster_(cluster),
        graph_(graph),
        request_(request),
        optimizer_(optimizer_cost(profile, request.optimizer, request.optimizer_state_ratio)) {}

  void simulate(Finalist& finalist) {
    const PricingContext context = context_of(finalist);
    if (finalist.placed) {
      settle_placed(finalist, context, request_);
    } else {
      finalist.prediction =
          simulate_prediction(price_stages(context, finalist.assignment), finalist.assignment, context);
      finalist.short_by = std::max(Bytes(0), simulated_shortage(finalist, cluster_, request_));
    }
  }

  /// The best of every set of stages, replicas and micro-batches, in turn, while operations are left. How many
  /// got faster.
  int improve(std::vector<Finalist>& ranked) {
    int improved = 0;
    std::set<std::tuple<std::vector<std::vector<int>>, std::vector<int>, int>> known;
    std::int64_t operations = kImproved;
    for (Finalist& finalist : ranked) {
      const bool fresh = known
                             .emplace(finalist.assignment.stage_layers, replicas_of(finalist.partition),
                                      finalist.batch.micro_batches)
                             .second;
      if (finalist.placed || !fresh || operations <= 0) continue;
      const Seconds before = finalist.prediction.step;
      improve_locally(finalist, context_of(finalist), request_, operations);
      improved += finalist.prediction.step < before ? 1 : 0;
    }
    return improved;
  }

 private:
  PricingContext context_of(const Finalist& finalist) {
    const int count = finalist.batch.micro_batches;
    if (!models_.contains(count)) {
      const CurveOptions curve{request_.extrapolate, request_.linear_batch};
      models_.emplace(count, price_model(profile_, finalist.batch.sizes, curve));
    }
    return {graph_, models_.at(count), cluster_, optimizer_, request_.all_reduce_overlap};
  }

  const Profile& profile_;
  const Cluster& cluster_;
  const PlanGraph& graph_;
  const PlanRequest& request_;
  OptimizerCost optimizer_;
  std::map<int, PricedModel> models_;
};

/// Best first; of equal plans, to which different ones can be improved, one.
void sort_by_rank(std::vector<Finalist>& finalists) {
  std::ranges::sort(finalists, [](const Finalist& a, const Finalist& b) { return rank(a) < rank(b); });
  const auto same = std::ranges::unique(finalists, [](const Finalist& a, const Finalist& b) {
    return rank(a) == rank(b) && a.windows == b.windows;
  });
  finalists.erase(same.begin(), same.end());
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

Assignment assign(const Finalist& finalist, const PlanGraph& graph, const PlanRequest& request) {
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
  assignment.programs =
      make_schedule({.name = std::string(finalist.schedule->name),
                     .replicas = replicas_of(finalist.partition),
                     .micro_batches = finalist.batch.micro_batches,
                     .window = finalist.windows.empty() ? request.window : WindowRule::explicit_list,
                     .windows = finalist.windows.empty() ? request.windows : finalist.windows})
          .workers;
  std::vector<int> stage_of(graph.layers.size());
  for (int s = 0; s < assignment.stages(); ++s) {
    for (const int layer : assignment.stage_layers[static_cast<std::size_t>(s)])
      stage_of[static_cast<std::size_t>(layer)] = s;
  }
  add_tied_reductions(assignment.programs, tied_copies(graph, stage_of), assignment.stage_workers);
  return assignment;
}

std::vector<Bytes> worker_limits(const Finalist& finalist, const Cluster& cluster, const PlanRequest& request) {
  std::vector<Bytes> limits;
  for (int w = 0; w < finalist.workers(); ++w) {
    const Device& device =
        cluster.devices[static_cast<std::size_t>(finalist.devices[static_cast<std::size_t>(w)])];
    limits.push_back(Bytes(usable_bytes(device, request)) - request.context_bytes);
  }
  return limits;
}

Bytes simulated_shortage(const Finalist& finalist, const Cluster& cluster, const PlanRequest& request) {
  const std::vector<Bytes> limits = worker_limits(finalist, cluster, request);
  Bytes shortage = finalist.prediction.workers.front().memory.peak - limits.front();
  for (std::size_t w = 1; w < limits.size(); ++w)
    shortage = std::max(shortage, finalist.prediction.workers[w].memory.peak - limits[w]);
  return shortage;
}

SearchOutcome search_and_price(const Profile& profile, const Cluster& cluster, const PlanGraph& graph,
                               const PlanRequest& request) {
  SearchOutcome outcome;
  Gathered gathered = gather(profile, cluster, graph, request);
  outcome.bound = gathered.bound;
  outcome.bound_holds = gathered.bound_holds;
  outcome.orders = gathered.orders;
  outcome.batches = gathered.batches;
  outcome.schedules = gathered.schedules;
  outcome.candidates = static_cast<int>(gathered.finalists.size());
  outcome.ranked = shortlist(std::move(gathered.finalists), graph, request);
  Pricer pricer(profile, cluster, graph, request);
  for (Finalist& finalist : outcome.ranked) pricer.simulate(finalist);
  for (const Finalist& finalist : outcome.ranked) {
    if (finalist.placed)
      outcome.short_by = std::min(outcome.short_by.value_or(finalist.short_by), finalist.short_by);
  }
  std::erase_if(outcome.ranked, [](const Finalist& finalist) { return finalist.short_by > Bytes(0); });
  sort_by_rank(outcome.ranked);
  outcome.improved = pricer.improve(outcome.ranked);
  sort_by_rank(outcome.ranked);
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
