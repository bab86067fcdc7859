#include "libplan/schedule/versions.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <string>

#include "libplan/schedule/closed_forms.h"
#include "libplan/schedule/schedule.h"
#include "libprofile/core/error.h"
#include "libprofile/core/index.h"

namespace pp::plan {

namespace {

/// The newest, what is predicted, and what a mini-batch's forwards share.
int predictions_kept(int stage, int stages, int per_update) {
  if (look_ahead(stage, stages, per_update) == LookAhead{}) return 1;
  return per_update == 1 ? 2 : 3;
}

/// Of one stage on one worker.
struct StageVersions {
  int newest = 0;
  std::map<int, int> held;        ///< version -> micro-batches in flight on it
  std::map<int, int> version_of;  ///< micro-batch in flight -> version
  int next_wanted = 0;            ///< by the forward after the last one
};

class VersionWalk {
 public:
  VersionWalk(const ProgramSet& set, WeightPolicy policy)
      : set_(set),
        policy_(policy),
        per_update_(set.backwards_per_update * static_cast<int>(set.stage_workers.front().size())),
        live_(set.stage_workers.size(), 1) {}

  std::vector<int> run() {
    if (policy_ == WeightPolicy::predict) return predicted();
    for (std::size_t w = 0; w < set_.workers.size(); ++w) {
      std::map<StageId, StageVersions> stages;
      for (std::size_t i = 0; i < set_.workers[w].size(); ++i) {
        worker_ = w, position_ = i;
        step(stages[op().stage]);
      }
    }
    return live_;
  }

 private:
  const Op& op() const { return set_.workers[worker_][position_]; }

  std::vector<int> predicted() {
    const int stages = static_cast<int>(live_.size());
    for (int s = 0; s < stages; ++s) {
      const std::size_t workers = set_.stage_workers[at(s)].size();
      if (workers > 1) {
        throw Error(ErrorKind::data, "stage " + std::to_string(s) + " has " + std::to_string(workers) +
                                         " replicas; weight policy predict needs a straight pipeline");
      }
      live_[at(s)] = predictions_kept(s, stages, per_update_);
    }
    return live_;
  }

  void step(StageVersions& stage) {
    if (op().kind == OpKind::forward && holds_versions(policy_)) {
      const int version = version_of(stage);
      stage.next_wanted = wanted(op().micro_batch + replicas(), stage);
      ++stage.held[version];
      stage.version_of[op().micro_batch] = version;
    } else if (completes_backward(op().kind) && holds_versions(policy_)) {
      release(stage);
    } else if (op().kind == OpKind::update) {
      ++stage.newest;
    }
    live_[index(op().stage)] = std::max(live_[index(op().stage)], alive(stage));
    check_buffers(stage);
  }

  int replicas() const { return static_cast<int>(set_.stage_workers[index(op().stage)].size()); }
  /// The policy looks back by a fixed number of versions, so what lies between must be kept.
  bool delayed() const {
    return policy_ == WeightPolicy::vertical_sync || policy_ == WeightPolicy::two_buffered;
  }

  int wanted(int micro_batch, const StageVersions& stage) const {
    const int stages = static_cast<int>(set_.stage_workers.size());
    if (policy_ == WeightPolicy::vertical_sync) return std::max(0, micro_batch - (stages - 1));
    if (policy_ == WeightPolicy::two_buffered) return std::max(0, micro_batch / per_update_ - 1);
    return stage.newest;
  }

  int version_of(const StageVersions& stage) const {
    const int version = wanted(op().micro_batch, stage);
    if (version <= stage.newest) return version;
    refuse("needs version " + std::to_string(version) + " of stage " + std::to_string(number(op().stage)) +
           ", the newest is " + std::to_string(stage.newest) +
           "; update less often, or keep fewer micro-batches in flight");
  }

  int alive(const StageVersions& stage) const {
    if (!delayed()) return static_cast<int>(stage.held.size()) + (stage.held.contains(stage.newest) ? 0 : 1);
    const int oldest = stage.held.empty() ? stage.newest : stage.held.begin()->first;
    return stage.newest - std::min(oldest, stage.next_wanted) + 1;
  }

  void release(StageVersions& stage) const {
    const int version = stage.version_of.at(op().micro_batch);
    stage.version_of.erase(op().micro_batch);
    if (--stage.held.at(version) == 0) stage.held.erase(version);
  }

  void check_buffers(const StageVersions& stage) const {
    if (!aggregates(policy_) || alive(stage) <= 2) return;
    refuse("leaves " + std::to_string(alive(stage)) + " versions of stage " +
           std::to_string(number(op().stage)) + " alive, weight policy " + std::string(name_of(policy_)) +
           " keeps 2; update less often, or keep fewer micro-batches in flight");
  }

  [[noreturn]] void refuse(const std::string& message) const {
    throw Error(ErrorKind::data, "worker " + std::to_string(worker_) + ", operation " +
                                     std::to_string(position_) + " (" + to_text(op()) + "): " + message);
  }

  const ProgramSet& set_;
  const WeightPolicy policy_;
  const int per_update_;  ///< micro-batches of the stream from one version to the next
  std::size_t worker_ = 0;
  std::size_t position_ = 0;
  std::vector<int> live_;  ///< per stage
};

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

bool aggregates(WeightPolicy policy) {
  return policy == WeightPolicy::two_buffered || policy == WeightPolicy::macrobatch;
}

bool groups(const ScheduleRow& schedule, WeightPolicy policy) {
  return schedule.any_count || aggregates(policy);
}

bool needs_straight(WeightPolicy policy) {
  return policy == WeightPolicy::vertical_sync || policy == WeightPolicy::predict;
}

bool is_served(WeightPolicy policy) { return has_server(policy) || policy == WeightPolicy::hogwild; }

bool has_server(WeightPolicy policy) {
  return policy == WeightPolicy::server || policy == WeightPolicy::downpour || policy == WeightPolicy::ssp;
}

bool holds_versions(WeightPolicy policy) {
  return policy != WeightPolicy::latest && policy != WeightPolicy::predict;
}

LookAhead look_ahead(int stage, int stages, int per_update) {
  const int behind = stage / 2;
  const auto updates = [&](int micro_batches) { return (micro_batches + per_update - 1) / per_update; };
  return {updates(behind + stages - 1 - stage), updates(behind)};
}

int versions_kept(WeightPolicy policy, int window, int stages, int per_update) {
  switch (policy) {
    case WeightPolicy::flush:
    case WeightPolicy::latest:
    case WeightPolicy::server:
    case WeightPolicy::downpour:
    case WeightPolicy::ssp:
    case WeightPolicy::hogwild: return 1;
    case WeightPolicy::stash: return window;
    case WeightPolicy::vertical_sync: return stages;
    case WeightPolicy::two_buffered: return 2;
    case WeightPolicy::macrobatch: return std::min(window, 2);
    case WeightPolicy::predict: return predictions_kept(stages - window, stages, per_update);
  }
  return 1;
}

std::vector<int> live_versions(const ProgramSet& set, WeightPolicy policy) {
  if (set.synchronous) {
    throw Error(ErrorKind::internal, "weight versions: a synchronous set has one");
  }
  return VersionWalk(set, policy).run();
}

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
