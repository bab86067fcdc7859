#include "libplan/search/zero_bubble/auto_zero_bubble.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "libplan/search/zero_bubble/improve.h"
#include "libplan/search/zero_bubble/starts.h"
#include "libplan/simulate/lower_bound.h"

namespace pp::plan {
namespace {

constexpr std::size_t kImproved = 4;   ///< starts that share the evaluations
constexpr std::size_t kFinalists = 8;  ///< orders that the simulator prices beside the hand-written ones

struct Candidate {
  std::string how;
  Order order;
  Score score;
};

struct Priced {
  std::string how;
  ProgramSet programs;
  Seconds period{}, makespan{};
};

/// Only some order of the pipeline: what the bounds and the clock read off does not depend on it.
SimulationInput with_any_order(SimulationInput input, const std::vector<Room>& rooms) {
  Order order;
  for (const Room& room : rooms) order.push_back(apply({static_cast<int>(room.size()), 0}, room));
  input.programs = to_programs(order, std::move(input.programs));
  return input;
}

class Search {
 public:
  explicit Search(const ZeroBubbleRequest& request)
      : rooms_(make_rooms(request)),
        input_(with_any_order(request.pipeline, rooms_)),
        pipeline_(make_pipeline(input_)),
        clock_(pipeline_) {
    const OrderBounds bounds = order_bounds(pipeline_, rooms_);
    goal_.period = std::max(bounds.period, period_bound(input_).count());
    goal_.makespan = std::max(bounds.makespan, makespan_bound(input_).count());
  }

  ZeroBubbleResult run(int evaluations) {
    const std::vector<Candidate> hand_written = timed(hand_written_orders(rooms_));
    set_limits(hand_written);
    std::vector<Candidate> candidates = timed(starting_orders(pipeline_, rooms_));
    candidates.insert(candidates.begin(), hand_written.begin(), hand_written.end());
    keep_best(candidates, kFinalists);
    improve_best(candidates, evaluations);
    keep_best(candidates, kFinalists);
    return choose(hand_written, candidates);
  }

 private:
  std::vector<Candidate> timed(const std::vector<NamedOrder>& orders) {
    std::vector<Candidate> result;
    for (const auto& [name, order] : orders) result.push_back({name, order, score(clock_.time(order), goal_)});
    return result;
  }

  void set_limits(const std::vector<Candidate>& hand_written) {
    for (const Candidate& candidate : hand_written) {
      goal_.period_limit = std::min(goal_.period_limit, candidate.score.period);
      goal_.makespan_limit = std::min(goal_.makespan_limit, candidate.score.makespan);
    }
  }

  /// Different orders that do not deadlock, best first.
  static void keep_best(std::vector<Candidate>& candidates, std::size_t count) {
    std::ranges::stable_sort(candidates, {}, &Candidate::score);
    std::vector<Candidate> kept;
    for (Candidate& candidate : candidates) {
      if (kept.size() == count || !std::isfinite(candidate.score.makespan)) break;
      if (std::ranges::find(kept, candidate.order, &Candidate::order) == kept.end()) {
        kept.push_back(std::move(candidate));
      }
    }
    candidates = std::move(kept);
  }

  /// The improved orders come beside those they started from.
  void improve_best(std::vector<Candidate>& candidates, int evaluations) {
    const std::size_t starts = std::min(kImproved, candidates.size());
    for (std::size_t i = 0; i < starts && !is_optimal(candidates.front().score, goal_); ++i) {
      const Candidate& start = candidates[i];
      ScoredOrder improved =
          improve({start.order, start.score}, clock_, rooms_, goal_, evaluations / static_cast<int>(starts));
      candidates.push_back({start.how + ", improved", std::move(improved.order), improved.score});
    }
  }

  /// By what the simulator says, where messages wait for ports.
  ZeroBubbleResult choose(const std::vector<Candidate>& hand_written, const std::vector<Candidate>& finalists) {
    std::vector<Priced> priced;
    Seconds least_period{std::numeric_limits<double>::infinity()};
    Seconds least_makespan = least_period;
    for (const Candidate& candidate : hand_written) {
      priced.push_back(price(candidate));
      least_period = std::min(least_period, priced.back().period);
      least_makespan = std::min(least_makespan, priced.back().makespan);
    }
    for (const Candidate& candidate : finalists) priced.push_back(price(candidate));
    const auto rank = [&](const Priced& order) {
      const bool dominated = order.period > least_period || order.makespan > least_makespan;
      return std::tuple(dominated, order.period, order.makespan);
    };
    const Priced& best = *std::ranges::min_element(priced, {}, rank);
    return {best.programs,           best.period, best.makespan, Seconds(goal_.period),
            Seconds(goal_.makespan), best.how};
  }

  Priced price(const Candidate& candidate) const {
    SimulationInput input = input_;
    input.programs = to_programs(candidate.order, std::move(input.programs));
    const Score times = score({simulate(input).makespan.count(), chained_period(input).count(), 0}, goal_);
    return {candidate.how, std::move(input.programs), Seconds(times.period), Seconds(times.makespan)};
  }

  const std::vector<Room> rooms_;
  const SimulationInput input_;
  const Pipeline pipeline_;
  OrderClock clock_;
  Goal goal_;
};

}  // namespace

ZeroBubbleResult search_zero_bubble(const ZeroBubbleRequest& request) {
  return Search(request).run(request.evaluations);
}

}  // namespace pp::plan
