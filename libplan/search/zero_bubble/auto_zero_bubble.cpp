#include "libplan/search/zero_bubble/auto_zero_bubble.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <tuple>

#include "libplan/search/zero_bubble/greedy.h"
#include "libplan/simulate/lower_bound.h"
#include "libprofile/core/index.h"

namespace pp::plan {

namespace {

constexpr std::size_t kImproved = 4;   ///< starts that share the evaluations
constexpr std::size_t kFinalists = 8;  ///< orders that the simulator prices beside the hand-written ones

struct Candidate {
  std::string how;
  Order order;
  OrderTimes times;
  Score score;
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
    for (const auto& [name, order] : orders) {
      const OrderTimes times = clock_.time(order);
      result.push_back({name, order, times, score(times, goal_)});
    }
    return result;
  }

  void set_limits(const std::vector<Candidate>& hand_written) {
    goal_.period_limit = goal_.makespan_limit = std::numeric_limits<double>::infinity();
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

  /// The improved orders come beside those they started from. Stops at a proof.
  void improve_best(std::vector<Candidate>& candidates, int evaluations) {
    const std::size_t starts = std::min(kImproved, candidates.size());
    const auto proven = [&](const Candidate& candidate) { return is_optimal(candidate.score, goal_); };
    for (std::size_t i = 0; i < starts && std::ranges::none_of(candidates, proven); ++i) {
      Candidate candidate = candidates[i];
      candidate.how += ", improved";
      candidate.order =
          improve(std::move(candidate.order), clock_, rooms_, goal_, evaluations / static_cast<int>(starts));
      candidate.times = clock_.time(candidate.order);
      candidate.score = score(candidate.times, goal_);
      candidates.push_back(std::move(candidate));
    }
  }

  /// By what the simulator says, where messages wait for ports.
  ZeroBubbleResult choose(std::vector<Candidate> hand_written, std::vector<Candidate> finalists) {
    for (Candidate& candidate : hand_written) price(candidate);
    set_limits(hand_written);
    for (Candidate& candidate : finalists) price(candidate);
    finalists.insert(finalists.begin(), hand_written.begin(), hand_written.end());
    const auto rank = [&](const Candidate& candidate) {
      const Score found = score(candidate.times, goal_);
      return std::tuple(found.excess > 0, found.period, found.makespan);
    };
    const Candidate& best = *std::ranges::min_element(finalists, {}, rank);
    return {to_programs(best.order, input_.programs),
            Seconds(std::max(best.times.period, goal_.period)),
            Seconds(best.times.makespan),
            Seconds(goal_.period),
            Seconds(goal_.makespan),
            best.how};
  }

  void price(Candidate& candidate) const {
    SimulationInput input = input_;
    input.programs = to_programs(candidate.order, input.programs);
    candidate.times = {simulate(input).makespan.count(), chained_period(input).count(), 0};
    candidate.score = score(candidate.times, goal_);
  }

  const std::vector<Room> rooms_;
  const SimulationInput input_;
  const Pipeline pipeline_;
  OrderClock clock_;
  Goal goal_;
};

double rounded(double seconds) {
  constexpr int kBits = 36;
  if (!std::isfinite(seconds)) return seconds;
  int exponent = 0;
  const double mantissa = std::frexp(seconds, &exponent);
  return std::ldexp(std::round(std::ldexp(mantissa, kBits)), exponent - kBits);
}

double above(double value, double limit) { return value > limit ? value / limit - 1 : 0; }

/// One operation of one worker runs at another position.
struct Move {
  std::size_t worker = 0;
  int from = 0;
  int to = 0;
};

void shift(WorkerOrder& order, int from, int to) {
  const auto begin = order.begin();
  if (from < to) {
    std::rotate(begin + from, begin + from + 1, begin + to + 1);
  } else {
    std::rotate(begin + to, begin + from, begin + from + 1);
  }
}

/// Proposes moves along critical paths. Raw generator bits: std distributions differ between libraries.
class Proposals {
 public:
  int below(int limit) { return static_cast<int>(bits_() % static_cast<std::uint64_t>(limit)); }

  /// Within a run of operations of one worker on the path: only there can an exchange shorten it.
  Move next(const std::vector<Place>& path) {
    const auto together = [](const Place& a, const Place& b) {
      return a.worker == b.worker && a.step == b.step;
    };
    const int chosen = below(static_cast<int>(path.size()));
    int first = chosen;  // the path goes backwards in time
    int last = chosen;
    while (first > 0 && together(path[at(first - 1)], path[at(chosen)])) --first;
    while (last + 1 < static_cast<int>(path.size()) && together(path[at(last + 1)], path[at(chosen)])) ++last;
    const int target = below(3);
    const int other = target == 0 ? first : target == 1 ? last : first + below(last - first + 1);
    const Place& place = path[at(chosen)];
    return {at(place.worker), place.position, path[at(other)].position};
  }

 private:
  std::mt19937_64 bits_{1};
};

}  // namespace

ZeroBubbleResult search_zero_bubble(const ZeroBubbleRequest& request) {
  return Search(request).run(request.evaluations);
}

Score score(const OrderTimes& times, const Goal& goal) {
  Score result;
  result.period = rounded(std::max(times.period, goal.period));
  result.makespan = rounded(std::max(times.makespan, goal.makespan));
  result.excess = above(result.period, goal.period_limit) + above(result.makespan, goal.makespan_limit);
  result.ends = rounded(times.ends);
  return result;
}

bool is_optimal(const Score& score, const Goal& goal) {
  return score.period <= rounded(goal.period) && score.makespan <= rounded(goal.makespan);
}

Order improve(Order order, OrderClock& clock, const std::vector<Room>& rooms, const Goal& goal,
              int evaluations) {
  Proposals proposals;
  std::array<std::vector<Place>, 2> paths;  // of the isolated step, and of three chained ones
  const auto find_paths = [&] { paths = {clock.critical_path(1), clock.critical_path(3)}; };
  Score best = score(clock.time(order), goal);
  find_paths();
  for (int tried = 0; tried < evaluations && !is_optimal(best, goal); ++tried) {
    const Move move = proposals.next(paths[at(proposals.below(2))]);
    WorkerOrder& changed = order[move.worker];
    if (changed[at(move.from)] == changed[at(move.to)]) continue;
    shift(changed, move.from, move.to);
    const bool allowed = is_valid(changed, rooms[move.worker]);
    const Score found = allowed ? score(clock.time(order), goal) : best;
    if (!allowed || found > best) {
      shift(changed, move.to, move.from);
    } else {
      best = found;
      find_paths();
    }
  }
  return order;
}

}  // namespace pp::plan
