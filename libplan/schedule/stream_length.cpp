#include "libplan/schedule/stream_length.h"

#include <algorithm>
#include <numeric>

#include "libplan/schedule/limits.h"
#include "libplan/schedule/versions.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

/// Operations that are written out of streams whose replicas take turns.
constexpr double kStretch = 200'000;

/// 0 when it exceeds the limit of operations.
std::int64_t common_multiple(std::int64_t a, std::int64_t b) {
  const std::int64_t common = a / std::gcd(a, b);
  return common <= kOperationLimit / b ? common * b : 0;
}

class Streams {
 public:
  Streams(const std::vector<const Stream*>& streams, const std::vector<std::vector<int>>& stage_workers,
          int per_update, WeightPolicy policy)
      : streams_(streams), stage_workers_(stage_workers), per_update_(per_update), turns_(turns_of(policy)) {}

  std::optional<StreamLength> length() const {
    const std::int64_t period = common_period();
    if (period == 0) return std::nullopt;
    const double limit = static_cast<double>(kOperationLimit);
    const std::int64_t whole = length_of(period);
    if (expanded_size(whole) <= kStretch) return StreamLength{static_cast<int>(whole)};
    if (take_turns()) {
      const std::int64_t part = length_of(affordable_round());
      if (expanded_size(part) <= limit) return StreamLength{static_cast<int>(part), true};
    }
    if (expanded_size(whole) <= limit) return StreamLength{static_cast<int>(whole)};
    return std::nullopt;
  }

 private:
  /// Rounds of a stream after which nothing new happens to its weight versions.
  int turns_of(WeightPolicy policy) const {
    if (policy == WeightPolicy::vertical_sync) return 2 + static_cast<int>(stage_workers_.size());
    return aggregates(policy) ? 3 : 2;
  }

  /// Of replicas, micro-batches per update and periods; 0 when it exceeds the limit.
  std::int64_t common_period() const {
    std::int64_t common = 1;
    const auto join = [&](std::int64_t period) { common = common == 0 ? 0 : common_multiple(common, period); };
    join(per_update_);
    for (const auto& workers : stage_workers_) join(std::ssize(workers));
    for (const Stream* stream : streams_) join(stream->period);
    return common;
  }

  int last_micro_batch() const {
    int last = 0;
    for (const Stream* stream : streams_) {
      for (const Program* part : {&stream->prologue, &stream->body}) {
        for (const Op& op : *part) last = std::max(last, has_micro_batch(op.kind) ? op.micro_batch : 0);
      }
    }
    return last;
  }

  std::int64_t length_of(std::int64_t period) const {
    return ((last_micro_batch() + period) / period + turns_) * period;
  }

  /// Operations of all streams over `length` micro-batches.
  double expanded_size(std::int64_t length) const {
    double operations = 0;
    for (const Stream* stream : streams_) {
      const auto rounds = static_cast<double>(length / stream->period + 1);
      operations +=
          static_cast<double>(stream->prologue.size()) + rounds * static_cast<double>(stream->body.size());
    }
    return operations;
  }

  /// Whether each replica of a stage does what the first one does, one micro-batch later than the replica
  /// before it.
  bool take_turns() const {
    const auto moved = [](Program program, int by) {
      for (Op& op : program) op.micro_batch += has_micro_batch(op.kind) ? by : 0;
      return program;
    };
    for (const auto& workers : stage_workers_) {
      const Stream& first = *streams_[at(workers.front())];
      for (std::size_t q = 1; q < workers.size(); ++q) {
        const int by = static_cast<int>(q);
        const Stream wanted{moved(first.prologue, by), moved(first.body, by), first.period};
        if (*streams_[at(workers[q])] != wanted) return false;
      }
    }
    return true;
  }

  /// Micro-batches in which every replica has its turns, of as long a round as a stretch affords.
  std::int64_t affordable_round() const {
    std::vector<int> replicas;
    for (const auto& workers : stage_workers_) replicas.push_back(static_cast<int>(workers.size()));
    const double per_micro_batch = 4.0 * static_cast<double>(replicas.size());  // F, B, AR and U
    return stream_round(replicas, per_update_, static_cast<int>(kStretch / (per_micro_batch * (1 + turns_))));
  }

  const std::vector<const Stream*>& streams_;
  const std::vector<std::vector<int>>& stage_workers_;
  int per_update_;
  int turns_;
};

}  // namespace

std::optional<StreamLength> stream_length(const std::vector<const Stream*>& streams,
                                          const std::vector<std::vector<int>>& stage_workers, int per_update,
                                          WeightPolicy policy) {
  return Streams(streams, stage_workers, per_update, policy).length();
}

}  // namespace pp::plan
