#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>

#include "libplan/schedule/limits.h"
#include "libplan/schedule/schedule.h"
#include "libprofile/core/error.h"

namespace pp::plan {
namespace {

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Stage s supplies all that the next stage wants in flight, plus one per own replica: win_s * r_s is at most
/// twice the number of workers from s on, so nothing overflows.
std::vector<int> supplying_windows(std::span<const int> replicas) {
  std::vector<int> result(replicas.size(), 1);
  for (std::size_t s = replicas.size() - 1; s-- > 0;) {
    const std::int64_t wanted = std::int64_t{result[s + 1]} * replicas[s + 1];
    result[s] = static_cast<int>(1 + ceil_div(wanted, replicas[s]));
  }
  return result;
}

std::vector<int> published_windows(std::span<const int> replicas) {
  std::vector<int> result(replicas.size(), 1);
  std::int64_t suffix = 0;
  for (std::size_t s = replicas.size(); s-- > 0;) {
    suffix += replicas[s];
    result[s] = static_cast<int>(ceil_div(suffix, replicas[s]));
  }
  return result;
}

}  // namespace

std::vector<int> windows(WindowRule rule, std::span<const int> replicas) {
  if (replicas.empty()) return {};
  switch (rule) {
    case WindowRule::published: return published_windows(replicas);
    case WindowRule::win: return supplying_windows(replicas);
    case WindowRule::wide: {
      std::vector<int> result = supplying_windows(replicas);
      for (int& window : result) window = 2 * window - 1;
      return result;
    }
    case WindowRule::explicit_list: break;
  }
  throw Error(ErrorKind::internal, "windows: an explicit list has no rule; read it from the request");
}

void check_stream_length(std::span<const int> replicas, int micro_batches) {
  std::int64_t round = 1;
  for (const int count : replicas) {
    round = std::lcm(round, std::int64_t{count});
    if (round <= kOperationLimit) continue;
    throw Error(ErrorKind::usage,
                "schedule pipedream: the replicas take turns that meet after more than " +
                    std::to_string(kOperationLimit) +
                    " mini-batches, the limit; give the stages replicas with a smaller common multiple");
  }
  for (std::size_t s = 0; s < replicas.size(); ++s) {
    if (micro_batches % replicas[s] == 0) continue;
    const std::int64_t below = micro_batches / round * round;
    throw Error(ErrorKind::usage, "schedule pipedream: " + std::to_string(micro_batches) +
                                      " mini-batches are not a multiple of the " + std::to_string(replicas[s]) +
                                      " replicas of stage " + std::to_string(s) + "; use " +
                                      (below > 0 ? std::to_string(below) + " or " : "") +
                                      std::to_string(below + round) + ", or --drop-last");
  }
}

int stream_round(std::span<const int> replicas, int per_update, int most) {
  std::vector<int> counts(replicas.begin(), replicas.end());
  std::ranges::sort(counts, std::greater<>());
  std::int64_t round = std::lcm(std::int64_t{per_update}, std::int64_t{counts.front()});
  if (round > std::numeric_limits<int>::max()) {
    throw Error(ErrorKind::usage, "a stage of " + std::to_string(counts.front()) + " replicas and updates of " +
                                      std::to_string(per_update) + " micro-batches take turns over " +
                                      std::to_string(round) + " micro-batches; give a divisor of either");
  }
  for (const int count : counts) {
    const std::int64_t longer = std::lcm(round, std::int64_t{count});
    if (longer <= most) round = longer;
  }
  return static_cast<int>(round);
}

}  // namespace pp::plan
