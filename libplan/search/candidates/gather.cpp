#include "libplan/search/candidates/gather.h"

#include <algorithm>
#include <map>
#include <set>

#include "libplan/search/candidates/graph_candidates.h"
#include "libplan/search/candidates/ordered_candidates.h"
#include "libplan/search/candidates/placed.h"

namespace pp::plan {
namespace {

constexpr std::size_t kMostPairs = 20'000'000;  ///< of down-sets, times devices, over all cases

/// The finalist with these devices for its workers in turn.
Finalist on_devices(Finalist finalist, std::vector<int> devices) {
  finalist.devices = std::move(devices);
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

/// What one search has found.
struct Searched {
  CandidateList list;
  std::vector<OrderedCandidate> ordered;
};

class Gatherer {
 public:
  Gatherer(const Profile& profile, const Cluster& cluster, const PlanGraph& graph, const PlanRequest& request,
           const SearchLimits& limits)
      : profile_(profile), cluster_(cluster), graph_(graph), request_(request), limits_(limits) {
    if (request.observer) stop_.goes_on = [this] { return goes_on(request_, progress()); };
  }

  Gathered run(DownSets down_sets) {
    const bool free_order = has_free_order(graph_, request_);
    for_each_case(profile_, cluster_, graph_, request_, [&](PlanCase one) {
      one.space.stop = stop_;
      orders_.insert(one.order.name);
      schedules_.insert(one.schedule.name);
      if (is_placed(one.schedule)) placed_.insert(one.schedule.name);
      if (stops()) return include_skipped(one);
      batches_.insert(one.batch.sizes);
      is_placed(one.schedule) ? add_placed(one) : add_chain(one, free_order);
    });
    if (free_order && !result_.finalists.empty()) add_graph(down_sets);
    result_.cut_short = cut_short_;
    if (!equal_memories(cluster_, request_)) result_.bound_holds.clear();
    result_.orders = static_cast<int>(orders_.size());
    result_.schedules = static_cast<int>(schedules_.size());
    result_.batches = static_cast<int>(batches_.size());
    result_.placed_schedules = static_cast<int>(placed_.size());
    result_.exact = !result_.equal_replicas &&
                    !order_matters(cluster_, usable_bytes(cluster_, request_, SharedMemory::parts));
    return std::move(result_);
  }

 private:
  /// Of some plan, on more devices.
  bool is_known() const { return limits_.slowest < std::numeric_limits<double>::infinity(); }

  SearchProgress progress() const {
    SearchProgress progress{static_cast<int>(cluster_.devices.size()), {}};
    if (is_known()) progress.best = Seconds(limits_.slowest);
    return progress;
  }

  /// Once there is something to answer with.
  bool stops() {
    if (cut_short_ || (!is_known() && result_.finalists.empty())) return cut_short_;
    return cut_short_ = !goes_on(request_, progress());
  }

  /// What no plan of the case can beat, without a search.
  void include_skipped(const PlanCase& one) {
    const StageMemory memory(one.chain, one.in_flight, one.devices.limit);
    if (is_placed(one.schedule)) return include_placed(shared_work(one));
    include_bound(order_free_bound(search_case(one, memory, cluster_, request_), one.space));
  }

  void add_placed(const PlanCase& one) {
    result_.floor = std::min(result_.floor, shared_work(one));
    if (limits_.depth != Depth::plain) return;
    try {
      for (Finalist& finalist : placed_finalists(one, cluster_, request_, limits_.slowest)) {
        result_.placed_bound = std::min(result_.placed_bound, finalist.bound);
        result_.finalists.push_back(std::move(finalist));
      }
    } catch (const SearchStopped&) {
      cut_short_ = true;
      include_skipped(one);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::usage) throw;
      if (!result_.refusal) result_.refusal = error;
    }
  }

  void add_chain(const PlanCase& one, bool free_order) {
    result_.only_placed = false;
    result_.equal_replicas |= one.space.aligned;
    const StageMemory memory(one.chain, one.in_flight, one.devices.limit);
    const SearchCase what = search_case(one, memory, cluster_, request_);
    const Searched& searched = search(one, what);
    const bool large = is_large(graph_.size(), static_cast<int>(one.devices.positions.size()));
    include_bound(large ? whole_bound(what, one.space) : searched.list.bound);
    if (free_order) order_free_ = std::min(order_free_, order_free_bound(what, one.space));
    for (const Candidate& candidate : searched.list.candidates) add(one, candidate);
    for (const auto& [partition, devices, estimate] : searched.ordered)
      result_.finalists.push_back(on_devices(
          finalist_of(one, {partition, estimate, searched.list.bound, Origin::device_list}), devices));
  }

  /// What an earlier case on the same chain has found, unless memory tells them apart.
  const Searched& search(const PlanCase& one, const SearchCase& what) {
    if (one.fresh && one.search == 0) searched_.clear(), whole_bounds_.clear();
    if (one.fresh) searched_.emplace_back();
    Searched& searched = searched_[static_cast<std::size_t>(one.search)];
    if (!one.fresh && !what.memory.limited()) return searched;
    searched = {find_candidates(what, one.space, limits_), {}};
    cut_short_ |= searched.list.cut_short;
    if (one.space.aligned) return searched;
    searched.list.bound = ordered_bound(one, cluster_, request_, searched.list.bound);
    // With Depth::inherited they would be those of Depth::plain, which was searched before.
    const bool wanted = limits_.depth == Depth::plain && searched.list.bound <= limits_.slowest && !cut_short_;
    if (wanted) searched.ordered = ordered(one);
    return searched;
  }

  /// Of all pipelines: those of equal replicas are searched alone, and local moves may leave them.
  double whole_bound(const SearchCase& what, SearchSpace space) {
    const auto [found, fresh] = whole_bounds_.try_emplace(what.synchronous);
    if (!fresh) return found->second;
    space.devices = static_cast<int>(cluster_.devices.size());
    space.max_replicas = what.synchronous ? what.micro_batches : 0;
    return found->second = order_free_bound(what, space);
  }

  /// None when it is stopped on the way.
  std::vector<OrderedCandidate> ordered(const PlanCase& one) {
    try {
      return ordered_candidates(one, cluster_, request_);
    } catch (const SearchStopped&) {
      cut_short_ = true;
      return {};
    }
  }

  /// On the devices that the request's placement gives it.
  Finalist& add(const PlanCase& one, const Candidate& candidate) {
    return result_.finalists.emplace_back(on_devices(
        finalist_of(one, candidate), worker_positions(one, cluster_, request_, candidate.partition)));
  }

  void include_placed(double bound) {
    result_.placed_bound = std::min(result_.placed_bound, bound);
    result_.floor = std::min(result_.floor, bound);
  }

  void include_bound(double bound) {
    result_.bound = std::min(result_.bound, bound);
    result_.floor = std::min(result_.floor, bound);
  }

  /// Down-sets where they are few, else a bound that needs no order (that of placed schedules never does).
  void add_graph(DownSets down_sets) {
    const std::size_t searches = batches_.size() * schedules_.size() * cluster_.devices.size();
    const bool wanted = down_sets == DownSets::search && !result_.only_placed && !cut_short_;
    const auto lattice = wanted ? make_lattice(graph_, {.pairs = kMostPairs / searches}) : std::nullopt;
    if (!lattice) {
      include_bound(order_free_);
      result_.bound_holds = "any layer order";
      return;
    }
    result_.bound_holds = "all " + std::to_string(lattice->size()) + " down-sets";
    std::vector<GraphCandidateList> lists;  // PlanCase::search
    for_each_graph_case(profile_, cluster_, graph_, *lattice, request_, [&](const PlanCase& one) {
      if (is_placed(one.schedule)) return;
      if (stops()) return include_skipped(one);
      const StageMemory memory(one.chain, one.in_flight, one.devices.limit);
      const SearchCase what = search_case(one, memory, cluster_, request_);
      if (one.fresh && one.search == 0) lists.clear();
      if (one.fresh) lists.emplace_back();
      GraphCandidateList& list = lists[static_cast<std::size_t>(one.search)];
      if (one.fresh || what.memory.limited())
        list = find_graph_candidates(what, *lattice, one.space, graph_.size());
      include_bound(list.bound);
      for (const auto& [stages, estimate] : list.candidates)
        add(one, {stages.partition, estimate, list.bound, Origin::down_sets}).order = stages.order;
    });
  }

  const Profile& profile_;
  const Cluster& cluster_;
  const PlanGraph& graph_;
  const PlanRequest& request_;
  SearchLimits limits_;
  StopSign stop_;
  bool cut_short_ = false;
  Gathered result_;
  std::vector<Searched> searched_;       ///< PlanCase::search
  std::map<bool, double> whole_bounds_;  ///< of the same chain, by what is synchronous
  double order_free_ = std::numeric_limits<double>::infinity();
  std::set<std::string_view> orders_, schedules_, placed_;
  std::set<std::vector<int>> batches_;
};

}  // namespace

Gathered gather(const Profile& profile, const Cluster& cluster, const PlanGraph& graph,
                const PlanRequest& request, const SearchLimits& limits, DownSets down_sets) {
  return Gatherer(profile, cluster, graph, request, limits).run(down_sets);
}

}  // namespace pp::plan
