#include "libplan/search/best_first.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <utility>

#include "libplan/cost/constants.h"
#include "libplan/request/device_orders.h"
#include "libplan/request/machine.h"
#include "libplan/request/shapes.h"
#include "libplan/search/candidates/chain_case.h"
#include "libplan/search/candidates/placed.h"
#include "libplan/search/shortlist.h"

namespace pp::plan {
namespace {

constexpr std::size_t kDrawnOrders = 64;

/// Numbers of devices that are searched: of large models those whose binary form has ones in its first three
/// places only, so that a large machine costs a few dozen searches and not hundreds.
bool is_searched(int layers, int devices) {
  const auto count = static_cast<unsigned>(devices);
  return is_small(layers, devices) || std::bit_width(count) - std::countr_zero(count) <= 3;
}

class BestFirst {
 public:
  BestFirst(const Profile& profile, const Cluster& cluster, const PlanGraph& graph, const PlanRequest& request)
      : profile_(profile),
        cluster_(cluster),
        graph_(graph),
        request_(request),
        all_(static_cast<int>(cluster.devices.size())),
        takes_long_(!is_small(graph.size(), all_)),
        shortlist_(profile, cluster, graph, request),
        equal_places_(!order_matters(cluster, usable_bytes(cluster, request, SharedMemory::parts))) {
    stop_.goes_on = [this] { return goes_on(request_, progress()); };
  }

  /// `first`: what all is measured against, if it is known.
  void run(const std::optional<Finalist>& first = {}) {
    add_part(all_);
    if (first) answer({first->unpriced()});
    if (shortlist_.best() == kInfinity) answer(Quick::seed);
    while (!shortlist_.stops(devices_) && !stopped_ && step()) {
    }
    if (shortlist_.best() == kInfinity && (stopped_ || shortlist_.cut_short())) finish();
  }

  // What was found, once.
  std::vector<Finalist> ranked() { return std::move(shortlist_).ranked(); }
  SearchOutcome outcome() {
    outcome_.bound = least_proven();
    outcome_.cut_short = stopped_ || shortlist_.cut_short();
    const bool equal = equal_memories(cluster_, request_);
    if (parts_.front().free_order && equal) outcome_.bound_holds = "any layer order";
    outcome_.orders = static_cast<int>(orders_.size());
    outcome_.batches = static_cast<int>(batches_.size());
    outcome_.schedules = static_cast<int>(schedules_.size());
    outcome_.placed_schedules = static_cast<int>(placed_.size());
    outcome_.exact = equal_places_ && !outcome_.equal_replicas;
    outcome_.short_by = shortlist_.short_by();
    outcome_.short_schedule = shortlist_.short_schedule();
    outcome_.endless = shortlist_.endless();
    outcome_.candidates = shortlist_.candidates();
    outcome_.improved = shortlist_.improved();
    const bool only_placed = placed_.size() == schedules_.size();
    outcome_.ranked = ranked();
    if (outcome_.ranked.empty() && only_placed && !outcome_.short_by && refusal_) throw *refusal_;
    for (const ScheduleRow* row : requested_schedules(request_)) outcome_.left_out.push_back(row->name);
    for (const ScheduleRow* row : planned_schedules(profile_, request_))
      std::erase(outcome_.left_out, row->name);
    outcome_.unpriced = unpriced_schedules(profile_, request_);
    return std::move(outcome_);
  }

 private:
  // What is open.
  struct Case {
    std::unique_ptr<OpenCase> open;
    MachinePart* part;
  };
  struct Candidate {
    Finalist finalist;
    int devices;  ///< that its search had
    bool misjudged;
  };
  struct Start {
    std::size_t priced;
    int devices;
  };
  /// By the least step that may come of each, in turn where equal.
  template <class Open>
  using Queue = std::map<std::pair<double, std::int64_t>, Open>;

  SearchProgress progress() const {
    SearchProgress progress{devices_, {}};
    if (shortlist_.best() < kInfinity) progress.best = Seconds(shortlist_.best());
    return progress;
  }

  template <class Open>
  void push(Queue<Open>& queue, double least, Open open) {
    queue.emplace(std::pair(least, next_++), std::move(open));
  }
  template <class Open>
  static double least(const Queue<Open>& queue) {
    return queue.empty() ? kInfinity : queue.begin()->first.first;
  }

  /// Until there is a plan, where searches take long one from a search, one case after the other is searched.
  bool begins() const { return shortlist_.best() == kInfinity || (!found_ && takes_long_); }

  /// The first case then: one that has short searches.
  Queue<Case>::iterator promising() {
    const auto is_long = [](const auto& entry) {
      return dynamic_cast<const ChainCase*>(entry.second.open.get()) == nullptr;
    };
    return std::ranges::min_element(cases_, {}, is_long);
  }

  /// A partition that promises a shorter step than the best plan goes before searches that take long: with a
  /// better plan they take less time.
  bool candidate_is_next() const {
    const double promised = least(candidates_);
    const double others = std::min(least(cases_), least(starts_));
    const bool dives = takes_long_ && promised < shortlist_.best();
    return !candidates_.empty() && (dives || promised <= others);
  }

  /// False: nothing is left that may win.
  bool step() {
    const int fewer = next_part();
    const double of_fewer = fewer > 0 ? work_ / fewer : kInfinity;
    const double of_open = std::min({least(cases_), least(candidates_), least(starts_)});
    const bool none = cases_.empty() && candidates_.empty() && starts_.empty();
    const bool first = none || (of_fewer < of_open && shortlist_.best() < kInfinity);
    if (fewer > 0 && first && of_fewer < shortlist_.best()) return add_part(fewer), true;
    if (none) return add_drawn_orders();
    if (candidate_is_next()) {
      price_candidates();
    } else if (cases_.empty() || (!starts_.empty() && least(starts_) <= least(cases_))) {
      climb(starts_.extract(starts_.begin()).mapped());
    } else {
      const auto node = cases_.extract(begins() ? promising() : cases_.begin());
      visit(std::move(node.mapped()), node.key().first);
    }
    return true;
  }

  void visit(Case one, double least) {
    OpenCase& open = *one.open;
    devices_ = one.part->devices();
    // Searches of small models go as far as their schedules would alone.
    const double best = (takes_long_ ? shortlist_.best() : shortlist_.best_of(open.schedules())) * (1 + kTie);
    // What cannot win is still listed.
    const double limit = open.bound() <= best || shortlist_.is_full() ? best : kFar * best;
    // A closer look is for what comes near the best, and a search for what is not far from it.
    const bool misjudged = open.misjudges();
    const double far = (misjudged ? kNear : kFar) * best;
    try {
      if (open.bound() == kInfinity || open.bound() > limit || least > far) return close(std::move(one));
      if (!takes_long_ || !begins()) {
        if (open.refine(best)) return push(cases_, open.bound(), std::move(one));
      } else {
        while (open.bound() < kInfinity && open.refine(best)) {
        }
      }
      if (open.bound() == kInfinity || open.bound() > limit || !open.has_next()) return close(std::move(one));
      std::vector<Finalist> found =
          open.next({limit, shortlist_.worth(devices_, false), shortlist_.worth(devices_, true)});
      double promised = found.empty() ? least : kInfinity;
      for (Finalist& finalist : found) {
        const double may_be = std::max(finalist.estimate, finalist.bound);
        promised = std::min(promised, may_be);
        push(candidates_, may_be, Candidate{std::move(finalist), devices_, misjudged});
      }
      found_ |= !found.empty();
      push(cases_, promised, std::move(one));
    } catch (const SearchStopped&) {
      stopped_ = true;
      push(cases_, open.bound(), std::move(one));
    }
  }

  void price_candidates() {
    constexpr std::size_t kMost = 8;
    std::vector<Finalist> finalists;
    std::vector<int> devices;
    while (finalists.size() < kMost && candidate_is_next()) {
      Candidate one = std::move(candidates_.extract(candidates_.begin()).mapped());
      if (!shortlist_.takes(one.finalist, one.devices, one.misjudged)) continue;
      finalists.push_back(std::move(one.finalist));
      devices.push_back(one.devices);
    }
    for (std::size_t begin = 0; begin < finalists.size();) {
      const std::size_t before = shortlist_.priced().size();
      const int here = devices[begin];
      begin += shortlist_.price_some(std::span(finalists).subspan(begin));
      add_starts(before, here);
    }
  }

  /// Plans that were priced from `first` on.
  void add_starts(std::size_t first, int devices) {
    for (std::size_t i = first; i < shortlist_.priced().size(); ++i)
      push(starts_, shortlist_.priced()[i].ranked_step(), Start{i, devices});
  }

  void climb(const Start& one) {
    devices_ = one.devices;
    shortlist_.climb(one.priced, one.devices);
  }

  void close(Case one) {
    if (!refusal_) refusal_ = one.open->refusal();
    keep(std::move(one.open));
  }

  /// What is proven of it, or may be.
  void keep(std::unique_ptr<OpenCase> open) {
    if (open->can_prove()) return closed_.push_back(std::move(open));
    least_closed_ = std::min(least_closed_, open->proven());
  }

  /// A part of the machine knows nothing of the nodes beyond it, over which some placements spread the stages;
  /// parts of a large one are searched with it.
  bool is_worth_searching(int devices) const {
    const bool spread = request_.placement == Placement::scatter || request_.placement == Placement::fresh;
    if (spread || !is_searched(graph_.size(), devices)) return false;
    if (request_.even_nodes && !has_equal_nodes(first_devices(cluster_, devices))) return false;
    // Parts of a large machine are searched with it unless plans use all of one: then until there is a plan.
    if (!is_large(graph_.size(), devices)) return true;
    return request_.even_nodes && shortlist_.best() == kInfinity;
  }

  /// The most devices that are worth a search and had none; 0: none. What fits on no number of devices does not
  /// fit on fewer, unless plans use all of them.
  int next_part() const {
    const bool nothing_fits = cases_.empty() && !found_ && !any_placed_;
    if (nothing_fits && !request_.even_nodes) return 0;
    int devices = least_part_ - 1;
    while (devices > 0 && !is_worth_searching(devices)) --devices;
    return devices;
  }

  void add_part(int devices) {
    least_part_ = devices;
    MachinePart& part =
        parts_.emplace_back(first_devices(cluster_, devices), graph_, request_, devices == all_);
    part.for_each_case(profile_, [&](PlanCase one) {
      if (devices == all_) count(one);
      work_ = std::min(work_, all_work(one));
      add_case(part, std::move(one));
    });
    merged_.clear();
  }

  void add_case(MachinePart& part, PlanCase one) {
    if (places_stages(one.schedule)) {
      any_placed_ = true;
    } else if (!one.fresh) {
      merged_[at(one.search)]->add(one.schedule);
      return;
    }
    one.space.stop = stop_;
    const bool chain = !places_stages(one.schedule);
    if (chain && one.search == 0) merged_.clear();
    for (std::unique_ptr<OpenCase>& open : open_cases(part, std::move(one))) {
      if (chain) merged_.push_back(static_cast<ChainCase*>(open.get()));
      const double bound = open->bound();
      push(cases_, bound, Case{std::move(open), &part});
    }
  }

  void count(const PlanCase& one) {
    orders_.insert(one.order.name);
    batches_.insert(one.batch.sizes);
    schedules_.insert(one.schedule.name);
    if (places_stages(one.schedule)) placed_.insert(one.schedule.name);
    outcome_.equal_replicas |= !places_stages(one.schedule) && one.space.aligned;
  }

  /// The pipelines of more orders of a small branching model, for schedules that fit in none of the usual ones,
  /// or only with recompute where the request leaves that open.
  bool add_drawn_orders() {
    if (std::exchange(drawn_, true) || !parts_.front().free_order || !is_small(graph_.size(), all_))
      return false;
    const auto planned = [&](const ScheduleRow* row) { return shortlist_.steps().contains(row); };
    const auto needs_recompute = [&](const ScheduleRow* row) {
      return planned(row) && std::ranges::none_of(shortlist_.priced(), [&](const Finalist& plan) {
               return plan.schedule == row && plan.recompute == RecomputeMode::never;
             });
    };
    bool any = add_drawn_orders(request_.recompute, std::not_fn(planned));
    if (request_.recompute == RecomputeMode::automatic)
      any |= add_drawn_orders(RecomputeMode::never, needs_recompute);
    return any;
  }

  template <class Wanted>
  bool add_drawn_orders(RecomputeMode mode, const Wanted& wanted) {
    const std::string schedules = schedules_for_drawn_orders(wanted);
    if (schedules.empty()) return false;
    for (std::vector<int>& order : drawn_orders(graph_, kDrawnOrders)) {
      PlanRequest& request = requests_.emplace_back(request_);
      request.schedule = schedules;
      request.recompute = mode;
      request.layer_order = std::move(order);
      MachinePart& part = parts_.emplace_back(cluster_, graph_, request, false);
      part.for_each_case(profile_, [&](PlanCase one) {
        if (!places_stages(one.schedule)) add_case(part, std::move(one));
      });
      merged_.clear();
    }
    return true;
  }

  /// Names of those that leave the placement to the planner and take the micro-batches, joined by commas.
  template <class Wanted>
  std::string schedules_for_drawn_orders(const Wanted& wanted) const {
    const std::vector<std::string_view> unpriced = unpriced_schedules(profile_, request_);
    std::string names;
    for (const ScheduleRow* row : planned_schedules(profile_, request_)) {
      if (places_stages(*row) || !wanted(row) || std::ranges::count(unpriced, row->name) > 0) continue;
      names.append(names.empty() ? "" : ",").append(row->name);
    }
    return names;
  }

  /// Something to answer with: what is open is priced until a plan fits, then what takes no long search.
  void finish() {
    for (auto& [key, one] : std::exchange(candidates_, {})) {
      answer({std::move(one.finalist)});
      if (shortlist_.best() < kInfinity) return;
    }
    answer(Quick::anything);
  }

  /// What is found quickly of one case after another, until a plan fits or that takes long: the observer may
  /// have ended the search by then.
  void answer(Quick how) {
    int looks = 50'000;  // a probe takes one for every layer
    const StopSign enough{[&] { return --looks > 0; }};
    try {
      for (auto one = cases_.begin(); one != cases_.end() && shortlist_.best() == kInfinity; ++one)
        answer(one->second.open->quick(how, enough));
    } catch (const SearchStopped&) {
    }
  }

  /// Prices them, the promising first, until one fits. The others are open.
  void answer(std::vector<Finalist> finalists) {
    std::ranges::stable_sort(finalists, {}, &Finalist::estimate);
    for (Finalist& finalist : finalists) {
      if (shortlist_.best() < kInfinity) {
        const double may_be = std::max(finalist.estimate, finalist.bound);
        push(candidates_, may_be, Candidate{std::move(finalist), all_, false});
        continue;
      }
      if (!shortlist_.takes(finalist, all_, false)) continue;
      const std::size_t before = shortlist_.priced().size();
      shortlist_.price_some(std::span(&finalist, 1));
      add_starts(before, all_);
    }
  }

  /// Proofs that take long come last, and only for cases that lie below all others.
  double least_proven() {
    for (auto& [key, one] : std::exchange(cases_, {})) keep(std::move(one.open));
    std::ranges::sort(closed_, {}, [](const auto& one) { return one->proven(); });
    double least = least_closed_;
    for (const std::unique_ptr<OpenCase>& one : closed_) {
      try {
        if (!stopped_) one->prove(std::min(least, shortlist_.best()));
      } catch (const SearchStopped&) {
        stopped_ = true;
      }
      least = std::min(least, one->proven());
    }
    return least;
  }

  const Profile& profile_;
  const Cluster& cluster_;
  const PlanGraph& graph_;
  const PlanRequest& request_;
  const int all_;
  const bool takes_long_;  ///< a search of all devices
  Shortlist shortlist_;
  StopSign stop_;
  std::list<PlanRequest> requests_;
  std::list<MachinePart> parts_;
  Queue<Case> cases_;
  Queue<Candidate> candidates_;
  Queue<Start> starts_;
  std::int64_t next_ = 0;
  std::vector<ChainCase*> merged_;  ///< PlanCase::search
  bool equal_places_;
  int least_part_ = 0, devices_ = all_;
  double work_ = kInfinity;  ///< seconds of compute of all micro-batches at the least, on one device
  std::vector<std::unique_ptr<OpenCase>> closed_;  ///< of which more can be proven
  double least_closed_ = kInfinity;                ///< the least OpenCase::proven() of the others
  bool found_ = false, any_placed_ = false, drawn_ = false, stopped_ = false;
  std::set<std::string_view> orders_, schedules_, placed_;
  std::set<std::vector<int>> batches_;
  std::optional<Error> refusal_;
  SearchOutcome outcome_;
};

/// Where searches take long, the best plan with cuts between blocks alone, which takes a fraction of the time.
std::optional<Finalist> between_blocks(const Profile& profile, const Cluster& cluster, const PlanGraph& graph,
                                       const PlanRequest& request) {
  const bool quickly = is_small(graph.size(), static_cast<int>(cluster.devices.size()));
  if (quickly || !graph.blocks.empty() || !request.cuts.empty()) return std::nullopt;
  PlanGraph blocks = graph;
  blocks.blocks = blocks_of(graph, 0);
  if (blocks.blocks.empty() || most_stages(blocks) < requested_stages(request)) return std::nullopt;
  try {
    BestFirst search(profile, cluster, blocks, request);
    search.run();
    std::vector<Finalist> found = search.ranked();
    if (!found.empty()) return std::move(found.front());
  } catch (const Error& error) {  // a schedule that refuses so few cuts
    if (error.kind() != ErrorKind::usage) throw;
  }
  return std::nullopt;
}

}  // namespace

SearchOutcome search_plans(const Profile& profile, const Cluster& cluster, const PlanGraph& graph,
                           const PlanRequest& request) {
  if (request.even_nodes && !has_equal_nodes(cluster))
    return search_plans(profile, with_equal_nodes(cluster), graph, request);
  const std::optional<Finalist> first = between_blocks(profile, cluster, graph, request);
  BestFirst search(profile, cluster, graph, request);
  search.run(first);
  return search.outcome();
}

}  // namespace pp::plan
