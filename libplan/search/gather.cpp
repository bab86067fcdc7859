#include "libplan/search/gather.h"

#include <algorithm>
#include <set>

#include "libplan/search/graph_candidates.h"
#include "libplan/search/ordered_candidates.h"
#include "libplan/search/placed.h"

namespace pp::plan {
namespace {

constexpr std::size_t kMostPairs = 20'000'000;  ///< of down-sets, times devices, over all cases

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

Finalist finalist_of(const PlanCase& one, const Partition& partition, const std::vector<int>& order,
                     std::vector<int> devices, double estimate) {
  Finalist finalist;
  finalist.partition = partition;
  finalist.order = order;
  finalist.batch = one.batch;
  finalist.schedule = &one.schedule;
  finalist.devices = std::move(devices);
  finalist.estimate = estimate;
  return finalist;
}

/// Whether the request leaves the layers free, and they have more than one linear order.
bool has_free_order(const PlanGraph& graph, const PlanRequest& request) {
  if (!request.cuts.empty() || !request.layer_order.empty()) return false;
  for (int l = 1; l < graph.size(); ++l) {
    if (std::ranges::count(graph.layers[static_cast<std::size_t>(l)].producers, l - 1) == 0) return true;
  }
  return false;
}

class Gatherer {
 public:
  Gatherer(const Profile& profile, const Cluster& cluster, const PlanGraph& graph, const PlanRequest& request)
      : profile_(profile), cluster_(cluster), graph_(graph), request_(request) {}

  Gathered run() {
    const bool free_order = has_free_order(graph_, request_);
    for_each_case(profile_, cluster_, graph_, request_, [&](const PlanCase& one) {
      orders_.insert(one.order.name);
      schedules_.insert(one.schedule.name);
      batches_.insert(one.batch.micro_batches);
      is_placed(one.schedule) ? add_placed(one) : add_chain(one, free_order);
    });
    if (free_order && !result_.finalists.empty()) add_graph();
    if (!equal_memories(cluster_, request_)) result_.bound_holds.clear();
    result_.orders = static_cast<int>(orders_.size());
    result_.schedules = static_cast<int>(schedules_.size());
    result_.batches = static_cast<int>(batches_.size());
    return std::move(result_);
  }

 private:
  void add_placed(const PlanCase& one) {
    std::ranges::move(placed_finalists(one, cluster_, request_, result_.bound),
                      std::back_inserter(result_.finalists));
  }

  void add_chain(const PlanCase& one, bool free_order) {
    chains_ = true;
    const StageMemory memory(one.chain, one.in_flight, one.devices.limit);
    const SearchCase what = search_case(one, memory, cluster_, request_);
    if (one.first_schedule || what.limited) {
      chain_list_ = find_candidates(what, prefixes(one.space));
      chain_list_.bound = ordered_bound(one, cluster_, request_, chain_list_.bound);
      ordered_ = ordered_candidates(one, cluster_, request_, prefixes(one.space));
    }
    result_.bound = std::min(result_.bound, chain_list_.bound);
    if (free_order) order_free_ = std::min(order_free_, order_free_bound(what, one.space));
    for (const auto& [partition, estimate] : chain_list_.candidates)
      add(one, partition, one.order.layers, estimate);
    for (const auto& [partition, devices, estimate] : ordered_)
      result_.finalists.push_back(finalist_of(one, partition, one.order.layers, devices, estimate));
  }

  /// On the devices that the request's placement gives it.
  void add(const PlanCase& one, const Partition& partition, const std::vector<int>& order, double estimate) {
    result_.finalists.push_back(
        finalist_of(one, partition, order, worker_positions(one, cluster_, request_, partition), estimate));
  }

  /// Down-sets where they are few, else a bound that needs no order (that of placed schedules never does).
  void add_graph() {
    const std::size_t searches = batches_.size() * schedules_.size() * cluster_.devices.size();
    const auto lattice = chains_ ? make_lattice(graph_, {.pairs = kMostPairs / searches}) : std::nullopt;
    if (!lattice) {
      result_.bound = std::min(result_.bound, order_free_);
      result_.bound_holds = "any layer order";
      return;
    }
    result_.bound_holds = "all " + std::to_string(lattice->size()) + " down-sets";
    GraphCandidateList list;
    for_each_graph_case(profile_, cluster_, graph_, *lattice, request_, [&](const PlanCase& one) {
      if (is_placed(one.schedule)) return;
      const StageMemory memory(one.chain, one.in_flight, one.devices.limit);
      const SearchCase what = search_case(one, memory, cluster_, request_);
      if (one.first_schedule || what.limited)
        list = find_graph_candidates(what, *lattice, one.space, graph_.size());
      result_.bound = std::min(result_.bound, list.bound);
      for (const auto& [stages, estimate] : list.candidates) add(one, stages.partition, stages.order, estimate);
    });
  }

  const Profile& profile_;
  const Cluster& cluster_;
  const PlanGraph& graph_;
  const PlanRequest& request_;
  Gathered result_;
  CandidateList chain_list_;
  std::vector<OrderedCandidate> ordered_;
  bool chains_ = false;  ///< some schedule leaves the stages to the searches
  double order_free_ = std::numeric_limits<double>::infinity();
  std::set<std::string_view> orders_, schedules_;
  std::set<int> batches_;
};

}  // namespace

Gathered gather(const Profile& profile, const Cluster& cluster, const PlanGraph& graph,
                const PlanRequest& request) {
  return Gatherer(profile, cluster, graph, request).run();
}

}  // namespace pp::plan
