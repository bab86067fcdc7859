#include "libplan/schedule/queues.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <unordered_set>

#include "libplan/schedule/closed_forms.h"
#include "libplan/schedule/program_index.h"
#include "libplan/schedule/versions.h"
#include "libprofile/core/error.h"
#include "libprofile/core/index.h"

namespace pp::plan {

namespace {

/// What a worker does one after the other for each operation.
enum class Action { receive, run, send };

struct Step {
  Action action = Action::run;
  int id = kNone;    ///< the operation that the worker is at
  int peer = kNone;  ///< receive: the producer; send: the consumer
};

class Queues {
 public:
  Queues(const ProgramIndex& index, int capacity)
      : index_(index),
        capacity_(capacity),
        steps_(at(index.workers())),
        next_(at(index.workers()), 0),
        queued_(at(index.workers()) * at(index.workers()), 0),
        arrived_(at(index.groups()), 0) {
    for (int id = 0; id < static_cast<int>(index.ops.size()); ++id) append_steps(id);
  }

  /// Tries the workers in turn until none moves. Every pass either moves or ends.
  void run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int w = 0; w < index_.workers(); ++w) {
        while (!finished(w) && can_take(w)) take(w), moved = true;
      }
    }
    for (int w = 0; w < index_.workers(); ++w) {
      if (!finished(w)) report();
    }
  }

 private:
  bool finished(int worker) const { return next_[at(worker)] == steps_[at(worker)].size(); }
  const Step& head(int worker) const { return steps_[at(worker)][next_[at(worker)]]; }
  int worker_of(int id) const { return index_.worker_of[at(id)]; }
  int& queued(int from, int to) { return queued_[at(from) * at(index_.workers()) + at(to)]; }
  static std::uint64_t message(int producer, int consumer) {
    return static_cast<std::uint64_t>(producer) << 32 | static_cast<std::uint32_t>(consumer);
  }

  void append_steps(int id) {
    auto& steps = steps_[at(worker_of(id))];
    index_.for_each_producer(id, [&](int producer, int edge) {
      if (edge != kNone && worker_of(producer) != worker_of(id))
        steps.push_back({Action::receive, id, producer});
    });
    steps.push_back({Action::run, id, kNone});
    index_.for_each_consumer(id, [&](int consumer, int edge) {
      if (edge != kNone && worker_of(consumer) != worker_of(id)) steps.push_back({Action::send, id, consumer});
    });
  }

  /// The receiver of a rendez-vous stands at the receive and moves with the sender, so a receive itself never
  /// starts one.
  bool can_take(int worker) {
    const Step& step = head(worker);
    if (step.action == Action::receive) return sent_.contains(message(step.peer, step.id));
    if (step.action == Action::run) return can_run(step.id);
    if (capacity_ > kRendezvous) return queued(worker, worker_of(step.peer)) < capacity_;
    const int receiver = worker_of(step.peer);
    if (finished(receiver)) return false;
    const Step& other = head(receiver);
    return other.action == Action::receive && other.peer == step.id && other.id == step.peer;
  }

  /// Within a worker and its lists nothing is missing at an operation's turn but what comes from elsewhere
  /// without a message (a stash on the host) and the partners of an all-reduce.
  bool can_run(int id) {
    bool ready = true;
    index_.for_each_producer(id, [&](int producer, int edge) {
      if (edge == kNone || worker_of(producer) == worker_of(id)) ready = ready && done_.contains(producer);
    });
    const int group = index_.group_of[at(id)];
    if (!ready || group == kNone) return ready;
    if (joined_.insert(id).second) ++arrived_[at(group)];
    return arrived_[at(group)] == index_.group_begin[at(group) + 1] - index_.group_begin[at(group)];
  }

  void take(int worker) {
    const Step step = head(worker);
    ++next_[at(worker)];
    if (step.action == Action::run) {
      done_.insert(step.id);
    } else if (step.action == Action::receive) {
      sent_.erase(message(step.peer, step.id));
      --queued(worker_of(step.peer), worker);
    } else {
      sent_.insert(message(step.id, step.peer));
      ++queued(worker, worker_of(step.peer));
    }
  }

  std::string describe(int worker) const {
    if (finished(worker)) return "finished";
    const Step& step = head(worker);
    const std::string op = to_text(index_.ops[at(step.id)]);
    if (step.action == Action::run) return "runs " + op + ", which waits for another worker";
    const std::string other = to_text(index_.ops[at(step.peer)]);
    const std::string peer = " (worker " + std::to_string(worker_of(step.peer)) + ")";
    return step.action == Action::receive ? "receives " + other + peer + " for " + op
                                          : "sends " + op + " to " + other + peer;
  }

  [[noreturn]] void report() const {
    std::string text = capacity_ == kRendezvous
                           ? "plan: deadlock with blocking sends after "
                           : "plan: deadlock with queues of " + std::to_string(capacity_) + " after ";
    text += std::to_string(done_.size()) + " of " + std::to_string(index_.ops.size()) + " operations";
    for (int w = 0; w < index_.workers(); ++w) text += "\n  worker " + std::to_string(w) + ": " + describe(w);
    throw Error(ErrorKind::data, text);
  }

  const ProgramIndex& index_;
  const int capacity_;
  std::vector<std::vector<Step>> steps_;    ///< per worker
  std::vector<std::size_t> next_;           ///< per worker
  std::vector<int> queued_;                 ///< [from][to]: messages under way
  std::unordered_set<std::uint64_t> sent_;  ///< messages under way
  std::unordered_set<int> done_;            ///< operations run
  std::unordered_set<int> joined_;          ///< all-reduces whose worker stands at them
  std::vector<int> arrived_;                ///< per group
};

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

  /// The least common multiple of replicas, micro-batches per update and periods; 0 when it exceeds the limit.
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

void check_queues(const ProgramSet& set, int capacity) {
  if (capacity < 0) {
    throw Error(ErrorKind::usage,
                "queue capacity = " + std::to_string(capacity) + "; give 0 (blocking sends) or more");
  }
  Queues(index_programs(set), capacity).run();
}

std::optional<StreamLength> stream_length(const std::vector<const Stream*>& streams,
                                          const std::vector<std::vector<int>>& stage_workers, int per_update,
                                          WeightPolicy policy) {
  return Streams(streams, stage_workers, per_update, policy).length();
}

}  // namespace pp::plan
