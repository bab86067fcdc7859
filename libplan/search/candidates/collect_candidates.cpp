#include "libplan/search/candidates/collect_candidates.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "libplan/cost/constants.h"
#include "libplan/request/device_orders.h"
#include "libplan/request/plan_request.h"
#include "libplan/search/candidates/ordered_candidates.h"
#include "libplan/search/candidates/placed.h"
#include "libplan/search/exact/any_order.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

constexpr std::size_t kDrawnOrders = 64;
constexpr std::size_t kMostSets = 4096;  ///< of a lattice; 0.1 s a probe

/// The case on another chain.
SearchCase over(const Chain& chain, const StageMemory& memory, const SearchCase& what) {
  return {
      chain,      chain,           memory,      what.synchronous, what.micro_batches, what.all_reduce_overlap,
      what.links, what.best_links, what.cluster};
}

/// The finalist with these devices for its workers in turn.
Finalist on_devices(Finalist finalist, std::vector<int> devices) {
  finalist.devices = std::move(devices);
  return finalist;
}

/// Whether the request leaves the layers free, and they have more than one linear order.
bool has_free_order(const PlanGraph& graph, const PlanRequest& request) {
  if (!request.cuts.empty() || !request.layer_order.empty()) return false;
  for (int l = 1; l < graph.size(); ++l) {
    if (std::ranges::count(graph.layers[at(l)].producers, l - 1) == 0) return true;
  }
  return false;
}

/// What one search has found.
struct Searched {
  CandidateList list;
  double bound = 0;  ///< of the case
  std::vector<OrderedCandidate> ordered;
};

/// Searches whose objectives compare: of one schedule with one way to save memory, over equal replicas or any,
/// on devices that are alike or on lists of them.
struct Rivals {
  const ScheduleRow* schedule = nullptr;
  RecomputeMode recompute = RecomputeMode::never;
  bool sharded = false, equal_replicas = false, on_list = false;
  auto operator<=>(const Rivals&) const = default;
};

/// A search that every layer order of the same micro-batches on the same devices has.
struct OrderRivals {
  Rivals rivals;
  int search = 0;  ///< PlanCase::search
  std::vector<int> devices, sizes;
  auto operator<=>(const OrderRivals&) const = default;
};

class CandidateCollector {
 public:
  CandidateCollector(const Profile& profile, const Cluster& cluster, const PlanGraph& graph,
                     const PlanRequest& request, Known known, Depth depth)
      : profile_(profile),
        cluster_(cluster),
        graph_(graph),
        request_(request),
        known_(std::move(known)),
        depth_(depth),
        small_(is_small(graph.size(), static_cast<int>(cluster.devices.size()))),
        lists_(cluster, request),
        equal_places_(!order_matters(cluster, usable_bytes(cluster, request, SharedMemory::parts))) {
    if (request.observer) stop_.goes_on = [this] { return goes_on(request_, progress()); };
  }

  /// From orders drawn at random: none of a graph that has one order, or is large.
  std::vector<Finalist> run_drawn() {
    if (small_ && has_free_order(graph_, request_)) add_drawn_orders();
    return std::move(result_.finalists);
  }

  Collected run() {
    const bool free_order = has_free_order(graph_, request_);
    if (free_order && !is_known() && equal_memories(cluster_, request_))
      lattice_ = make_lattice(graph_, kMostSets);
    for_each_case(
        profile_, cluster_, graph_, request_,
        [&](PlanCase one) {
          one.space.stop = stop_;
          orders_.insert(one.order.name);
          schedules_.insert(one.schedule.name);
          if (places_stages(one.schedule)) placed_.insert(one.schedule.name);
          if (stops()) return include_skipped(one);
          batches_.insert(one.batch.sizes);
          places_stages(one.schedule) ? add_placed(one, free_order) : add_chain(one, free_order);
        },
        lattice_ ? &*lattice_ : nullptr);
    if (free_order) {
      include_bound(order_free_);
      result_.bound_holds = "any layer order";
    }
    result_.cut_short = cut_short_;
    result_.nothing_fits = std::move(known_.nothing_fits);
    if (!equal_memories(cluster_, request_)) result_.bound_holds.clear();
    result_.orders = static_cast<int>(orders_.size());
    result_.schedules = static_cast<int>(schedules_.size());
    result_.batches = static_cast<int>(batches_.size());
    result_.placed_schedules = static_cast<int>(placed_.size());
    result_.exact = equal_places_ && !result_.equal_replicas;
    return std::move(result_);
  }

 private:
  /// Of some plan, on more devices.
  bool is_known() const { return !known_.steps.empty(); }

  SearchProgress progress() const {
    SearchProgress progress{static_cast<int>(cluster_.devices.size()), {}};
    for (const auto& [schedule, step] : known_.steps)
      progress.best = std::min(progress.best.value_or(Seconds(step)), Seconds(step));
    return progress;
  }

  /// What a plan of the case has to beat in seconds per step: the best plan of its schedule, of those that
  /// share searches the slowest of the best.
  double slowest(const PlanCase& one) const {
    const bool placed = places_stages(one.schedule);
    const auto own = known_.steps.find(&one.schedule);
    if (placed && own != known_.steps.end()) return own->second;
    double slowest = 0;
    for (const auto& [schedule, step] : known_.steps) {
      if (placed || !places_stages(*schedule)) slowest = std::max(slowest, step);
    }
    return slowest > 0 ? slowest : kInfinity;
  }

  /// Once there is something to answer with.
  bool stops() {
    if (cut_short_ || (!is_known() && result_.finalists.empty())) return cut_short_;
    return cut_short_ = !goes_on(request_, progress());
  }

  /// What no plan of the case can beat, without a search.
  void include_skipped(const PlanCase& one) {
    const StageMemory memory(one.chain, one.in_flight, one.devices.limit);
    if (places_stages(one.schedule)) return include_placed(shared_work(one));
    include_bound(order_free_bound(search_case(one, memory, cluster_, request_), one.space));
  }

  void add_placed(const PlanCase& one, bool free_order) {
    const LayerOrder layers = free_order ? LayerOrder::free : LayerOrder::fixed;
    result_.floor = std::min(result_.floor, shared_work(one));
    if (depth_ != Depth::plain) return;
    try {
      const SearchLimits limits{.slowest = slowest_placed(one),
                                .near = near(one, kPlaced, OnList::no),
                                .enough = std::min(result_.bound, result_.placed_bound)};
      PlacedFinalists found = placed_finalists(one, cluster_, request_, layers, limits);
      result_.placed_bound = std::min(result_.placed_bound, found.bound);
      for (Finalist& finalist : found.finalists) {
        include(finalist.estimate, one, kPlaced, OnList::no);
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

  /// The chains of other orders than those that for_each_case() takes.
  void add_drawn_orders() {
    for (std::vector<int>& order : drawn_orders(graph_, kDrawnOrders)) {
      if (stops()) return;
      PlanRequest request = request_;
      request.layer_order = std::move(order);
      for_each_case(profile_, cluster_, graph_, request, [&](PlanCase one) {
        one.space.stop = stop_;
        if (!places_stages(one.schedule) && !stops()) add_chain(one, /*free_order=*/true);
      });
    }
  }

  void add_chain(const PlanCase& one, bool free_order) {
    result_.only_placed = false;
    result_.equal_replicas |= one.space.aligned;
    const StageMemory memory(one.chain, one.in_flight, one.devices.limit);
    const SearchCase what = search_case(one, memory, cluster_, request_);
    const Searched& searched = search(one, what);
    include_bound(searched.bound);
    if (free_order && one.fresh) include_any_order(one, what);
    for (const Candidate& candidate : searched.list.candidates) add(one, candidate);
    for (const auto& [partition, devices, estimate] : searched.ordered)
      result_.finalists.push_back(on_devices(
          finalist_of(one, {partition, estimate, searched.list.bound, Origin::device_list}), devices));
  }

  /// What an equal case on the same chain has found, if there was one.
  const Searched& search(const PlanCase& one, const SearchCase& what) {
    if (!one.fresh) return searched_[at(one.search)];
    if (one.search == 0) searched_.clear();
    Searched& searched = searched_.emplace_back(find_candidates(what, one.space, limits_of(one)));
    for (const Candidate& candidate : searched.list.candidates)
      include(candidate.estimate, one, one.search, OnList::no);
    cut_short_ |= searched.list.cut_short;
    searched.bound = searched.list.bound;
    if (searched.list.nothing_fits && is_free(one))
      known_.nothing_fits.try_emplace(free_case(one), one.space.devices);
    if (depth_ == Depth::inherited) return searched;  // whose bounds are known
    const bool large = is_large(graph_.size(), static_cast<int>(one.devices.positions.size()));
    if (large) searched.bound = whole_bound(what, one.space);
    if (one.space.aligned) return searched;
    searched.list.bound = bound_on_devices(one, what, searched.list);
    if (!large) searched.bound = searched.list.bound;
    const bool wanted = depth_ == Depth::plain && searched.list.bound <= slowest(one) && !cut_short_;
    if (wanted) searched.ordered = ordered(one);
    for (const OrderedCandidate& candidate : searched.ordered)
      include(candidate.estimate, one, one.search, OnList::yes);
    return searched;
  }

  enum class OnList { no, yes };
  static constexpr int kPlaced = -1;  ///< all searches of a schedule that places its stages
  static Rivals rivals_of(const PlanCase& one, OnList on_list) {
    return {&one.schedule, one.in_flight.recompute, one.in_flight.sharded,
            one.space.min_replicas == one.space.max_replicas, on_list == OnList::yes};
  }
  static OrderRivals order_rivals_of(const PlanCase& one, int search, OnList on_list) {
    return {rivals_of(one, on_list), search, one.devices.positions, one.batch.sizes};
  }
  /// `search`: PlanCase::search.
  void include(double objective, const PlanCase& one, int search, OnList on_list) {
    if (depth_ != Depth::plain) return;
    for (double* least :
         {&objectives_.try_emplace(rivals_of(one, on_list), kInfinity).first->second,
          &other_orders_.try_emplace(order_rivals_of(one, search, on_list), kInfinity).first->second})
      *least = std::min(*least, objective);
  }
  /// The largest objective that is worth a search. Small models are searched in full, and schedules that place
  /// their stages at every micro-batch count: objectives are not steps.
  double near(const PlanCase& one, int search, OnList on_list) const {
    double most = kInfinity;
    if (small_) return most;
    const auto least_of_all = objectives_.find(rivals_of(one, on_list));
    if (search != kPlaced && least_of_all != objectives_.end()) most = kNear * least_of_all->second;
    const auto least = other_orders_.find(order_rivals_of(one, search, on_list));
    if (least != other_orders_.end()) most = std::min(most, (1 - kRounding) * least->second);
    return most;
  }

  SearchLimits limits_of(const PlanCase& one) const {
    const double enough = one.space.aligned ? 0 : result_.bound;  // of those whole_bound() is the bound
    const Depth depth = is_free(one) && is_known_not_to_fit(one) ? Depth::bound : depth_;
    return {slowest(one), known_.far, near(one, one.search, OnList::no), enough, depth};
  }

  /// Whether a search on fewer devices looks for some of the same partitions.
  bool is_free(const PlanCase& one) const {
    return equal_places_ && is_free_shape(one.schedule, one.in_flight.policy) && one.space.min_replicas == 1 &&
           !one.space.aligned;
  }
  static FreeCase free_case(const PlanCase& one) {
    return {&one.schedule,     one.in_flight.recompute, one.in_flight.sharded,
            one.devices.limit, one.order.layers,        one.batch.sizes};
  }
  bool is_known_not_to_fit(const PlanCase& one) const {
    const auto found = known_.nothing_fits.find(free_case(one));
    return found != known_.nothing_fits.end() && one.space.devices <= found->second;
  }

  /// Of thousands of devices, where a search takes long, only what may come near the best of equal replicas.
  double slowest_placed(const PlanCase& one) const {
    double most = slowest(one);
    if (!is_large(graph_.size(), static_cast<int>(one.devices.positions.size()))) return most;
    for (const auto& [rivals, least] : objectives_) most = std::min(most, kNear * least);
    return most;
  }

  /// Wherever the stages run.
  double bound_on_devices(const PlanCase& one, const SearchCase& what, const CandidateList& found) {
    try {
      if (!found.cut_short) return ordered_bound(one, cluster_, request_, found.bound, result_.bound);
    } catch (const SearchStopped&) {
      cut_short_ = true;
    }
    return equal_places_ ? found.bound : order_free_bound(what, one.space);
  }

  /// Of all pipelines: those of equal replicas are searched alone, and local moves may leave them.
  double whole_bound(const SearchCase& what, SearchSpace space) const {
    space.devices = static_cast<int>(cluster_.devices.size());
    space.max_replicas = what.synchronous ? what.micro_batches.count : 0;
    return order_free_bound(what, space);
  }

  /// None when it is stopped on the way.
  std::vector<OrderedCandidate> ordered(const PlanCase& one) {
    try {
      return ordered_candidates(one, cluster_, request_, lists_, near(one, one.search, OnList::yes));
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

  /// What no layer order of the case undercuts.
  void include_any_order(const PlanCase& one, const SearchCase& what) {
    double bound = order_free_bound(what, one.space);
    if (one.lattice != nullptr && bound < order_free_) {
      InFlight in_flight = one.in_flight;
      in_flight.units = nullptr;  // which stand in an order
      const StageMemory memory(*one.any_order, in_flight, one.devices.limit);
      SearchSpace space = one.space;
      space.layers = one.lattice->size() - 1;
      space.cut_allowed.clear();
      const double enough = std::min(order_free_, result_.bound);
      try {
        bound = std::max(bound, any_order_bound(*one.lattice, space,
                                                bound_cost(over(*one.any_order, memory, what), space), enough));
      } catch (const SearchStopped&) {
        cut_short_ = true;
      }
    }
    order_free_ = std::min(order_free_, bound);
  }

  void include_bound(double bound) {
    result_.bound = std::min(result_.bound, bound);
    result_.floor = std::min(result_.floor, bound);
  }

  const Profile& profile_;
  const Cluster& cluster_;
  const PlanGraph& graph_;
  const PlanRequest& request_;
  Known known_;
  Depth depth_;
  bool small_;
  DeviceLists lists_;
  bool equal_places_;  ///< whether it does not matter which device a stage is on
  StopSign stop_;
  bool cut_short_ = false;
  Collected result_;
  std::vector<Searched> searched_;              ///< PlanCase::search
  std::map<Rivals, double> objectives_;         ///< the least of each, in seconds per step or update
  std::map<OrderRivals, double> other_orders_;  ///< the least objective of each, so far
  std::optional<Lattice> lattice_;              ///< where layers have many orders, of the whole machine
  double order_free_ = kInfinity;
  std::set<std::string_view> orders_, schedules_, placed_;
  std::set<std::vector<int>> batches_;
};

}  // namespace

Collected collect_candidates(const Profile& profile, const Cluster& cluster, const PlanGraph& graph,
                             const PlanRequest& request, Known known, Depth depth) {
  return CandidateCollector(profile, cluster, graph, request, std::move(known), depth).run();
}

std::vector<Finalist> collect_drawn(const Profile& profile, const Cluster& cluster, const PlanGraph& graph,
                                    const PlanRequest& request) {
  return CandidateCollector(profile, cluster, graph, request, {}, Depth::plain).run_drawn();
}

}  // namespace pp::plan
