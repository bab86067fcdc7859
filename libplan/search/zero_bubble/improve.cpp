#include "libplan/search/zero_bubble/improve.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <random>

#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

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
