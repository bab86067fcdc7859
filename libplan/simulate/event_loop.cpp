#include "libplan/simulate/event_loop.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <deque>
#include <queue>
#include <span>
#include <utility>

#include "libplan/schedule/progress.h"
#include "libplan/simulate/op_costs.h"
#include "libprofile/core/error.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

std::size_t card_count(const SimulationInput& input) {
  return input.cards.empty() ? 0 : at(std::ranges::max(input.cards)) + 1;
}

/// Copies weights between the host and the device of a worker, one stage after the other, beside the worker's
/// own operations.
class Copier {
 public:
  explicit Copier(int stages) : loaded_(at(stages)), written_(at(stages)) {}

  /// From `now` on, or when what was asked for before is done.
  void load(StageId stage, double now, double seconds) { loaded_[pp::index(stage)] = copy(now, seconds); }
  void write_back(StageId stage, double now, double seconds) {
    written_[pp::index(stage)] = copy(now, seconds);
  }
  /// When the stage's operations may begin; when its memory may be used again.
  double loaded(StageId stage) const { return loaded_[pp::index(stage)]; }
  double written(StageId stage) const { return written_[pp::index(stage)]; }

 private:
  double copy(double now, double seconds) { return free_ = std::max(free_, now) + seconds; }

  double free_ = 0;
  std::vector<double> loaded_, written_;  ///< per stage
};

/// Hardware that several workers share: what runs there, and what waits.
struct Turns {
  std::deque<int> ops;  ///< the first one runs
  int last_step = 0;    ///< latest step of them
};

std::size_t hardware_count(const SimulationInput& input) {
  return input.hardware.empty() ? 0 : at(std::ranges::max(input.hardware)) + 1;
}

class EventLoop {
 public:
  EventLoop(const ProgramIndex& index, const SimulationInput& input, Messages messages, int steps)
      : index_(index),
        input_(input),
        keep_messages_(messages == Messages::keep),
        steps_(steps),
        costs_(index, input),
        missing_(index.ops.size(), 0),
        ready_(index.ops.size(), 0),
        heads_(index.worker_begin.begin(), index.worker_begin.end() - 1),
        idle_(at(index.workers()), true),
        free_(at(index.workers()), 0),
        out_port_(at(index.workers())),
        in_port_(at(index.workers())),
        out_card_(card_count(input)),
        in_card_(card_count(input)),
        out_time_(card_count(input)),
        in_time_(card_count(input)),
        last_reduction_(card_count(input), kNone),
        reducer_free_(at(index.workers()), 0),
        arrived_(at(index.groups()), 0),
        reductions_(at(index.groups())),
        copiers_(index.rules == RuleSet::swapped ? at(index.workers()) : 0, Copier(index.stages)),
        turns_(hardware_count(input)),
        has_turn_(turns_.empty() ? 0 : index.ops.size(), false) {
    timeline_.start.resize(index.ops.size());
    timeline_.end.resize(index.ops.size());
    for (int id = 0; id < static_cast<int>(index.ops.size()); ++id) {
      index.for_each_consumer(id, [&](int consumer, int) { ++missing_[at(consumer)]; });
    }
  }

  /// Whether no message has waited for one of a later step.
  bool apart() const { return apart_; }
  int step_of(int id) const {
    const int worker = index_.worker_of[at(id)];
    const int length = index_.worker_begin[at(worker) + 1] - index_.worker_begin[at(worker)];
    return index_.position(id) / (length / steps_);
  }

  Timeline run() {
    for (int worker = 0; worker < index_.workers(); ++worker) start_head(worker);
    std::size_t finished = 0;
    while (!events_.empty()) {
      const End next = events_.top();
      const int id = next.id;
      events_.pop();
      if (is_postponed(id) || takes_turn(id, next.time)) continue;
      finish(id);
      ++finished;
    }
    if (finished < index_.ops.size()) report_deadlock();
    return std::move(timeline_);
  }

 private:
  struct End {
    double time;
    std::uint64_t turn;  ///< of those that end together: by kind, stage, micro-batch and worker
    int id;
  };
  struct Port {
    double free = 0;  ///< from when on
    int step = 0;     ///< of the last message
  };
  /// An all-reduce that has begun.
  struct Reduction {
    double from = 0, seconds = 0;
    int step = 0;
    std::vector<int> cards{};  ///< that it occupies
    std::vector<int> after{};  ///< groups whose reductions come before it on one of them
    double end = 0;            ///< as far as is known
  };
  struct Later {
    bool operator()(const End& a, const End& b) const {
      return a.time != b.time ? a.time > b.time : a.turn > b.turn;
    }
  };
  /// Kinds, stages, micro-batches and workers are far below what the bits hold (schedule/closed_forms.h).
  std::uint64_t turn(int id) const {
    const Op& op = index_.ops[at(id)];
    const auto bits = [](auto value, int shift) { return static_cast<std::uint64_t>(value) << shift; };
    return bits(op.kind, 60) | bits(number(op.stage), 42) | bits(op.micro_batch, 18) |
           bits(index_.worker_of[at(id)], 0);
  }

  /// Starts the next operation of an idle worker, if nothing is missing.
  void start_head(int worker) {
    const int id = heads_[at(worker)];
    if (!idle_[at(worker)] || id == index_.worker_begin[at(worker) + 1] || missing_[at(id)] != 0) return;
    idle_[at(worker)] = false;
    ++heads_[at(worker)];
    const Op& op = index_.ops[at(id)];
    if (is_all_reduce(op.kind) && input_.all_reduce != AllReduceMode::free)
      return join_group(index_.group_of[at(id)]);
    const double start = std::max(free_[at(worker)], ready_[at(id)]);
    if (shares_hardware(id)) return events_.push({start, turn(id), id});
    begin(id, start);
  }

  void begin(int id, double start) {
    if (!copiers_.empty()) return start_swapped(id, start, copiers_[at(index_.worker_of[at(id)])]);
    schedule(id, start, start + costs_.duration(id));
  }

  bool shares_hardware(int id) const {
    const OpKind kind = index_.ops[at(id)].kind;
    return !turns_.empty() && (has_micro_batch(kind) || kind == OpKind::update) && !is_all_reduce(kind);
  }

  /// Whether the operation has only now come to the hardware that its worker shares; then it begins, or waits.
  bool takes_turn(int id, double now) {
    if (!shares_hardware(id) || has_turn_[at(id)]) return false;
    has_turn_[at(id)] = true;
    Turns& turns = turns_[at(input_.hardware[at(index_.worker_of[at(id)])])];
    const int step = steps_ == 1 ? 0 : step_of(id);
    if (!turns.ops.empty() && turns.last_step > step) apart_ = false;
    turns.last_step = turns.ops.empty() ? step : std::max(turns.last_step, step);
    turns.ops.push_back(id);
    if (turns.ops.size() == 1) begin(id, now);
    return true;
  }

  void end_turn(int id, double now) {
    if (!shares_hardware(id)) return;
    Turns& turns = turns_[at(input_.hardware[at(index_.worker_of[at(id)])])];
    turns.ops.pop_front();
    if (!turns.ops.empty()) begin(turns.ops.front(), now);
  }

  /// Weights come in beside other operations; E waits until the updated ones are out.
  void start_swapped(int id, double start, Copier& copier) {
    const Op& op = index_.ops[at(id)];
    if (op.kind == OpKind::load) copier.load(op.stage, start, costs_.copy_time(id));
    if (has_micro_batch(op.kind) || op.kind == OpKind::update) start = std::max(start, copier.loaded(op.stage));
    double end = start + costs_.duration(id);
    if (op.kind == OpKind::update)
      copier.write_back(op.stage, end, input_.stages[pp::index(op.stage)].evict.count());
    if (op.kind == OpKind::evict && index_.carries_state[at(id)]) end = std::max(end, copier.written(op.stage));
    schedule(id, start, end);
  }

  void schedule(int id, double start, double end) {
    timeline_.start[at(id)] = start;
    timeline_.end[at(id)] = end;
    events_.push({end, turn(id), id});
  }

  /// One more worker waits at the AR of this group; the last one starts it for all.
  void join_group(int group) {
    const auto begin = index_.group_members.begin() + index_.group_begin[at(group)];
    const std::span members(begin, index_.group_members.begin() + index_.group_begin[at(group) + 1]);
    if (++arrived_[at(group)] < static_cast<int>(members.size())) return;

    double start = 0;  // all have reached it
    double begun = 0;  // the reduction may run behind the last backwards
    for (const int id : members) {
      start = std::max(start, free_[at(index_.worker_of[at(id)])]);
      begun = std::max({begun, reducer_free_[at(index_.worker_of[at(id)])], gradients_flow(id)});
    }
    Reduction& reduction = reductions_[at(group)];
    reduction.from = input_.all_reduce == AllReduceMode::overlapped ? begun : start;
    reduction.seconds = reduction_seconds(index_.ops[at(members.front())]);
    reduction.step = steps_ == 1 ? 0 : step_of(members.front());
    occupy_cards(group, members);
    const double end = std::max(start, end_of(reduction));
    for (const int id : members) {
      reducer_free_[at(index_.worker_of[at(id)])] = end;
      schedule(id, start, end);
    }
  }

  void occupy_cards(int group, std::span<const int> members) {
    if (input_.cards.empty()) return;
    const auto card = [&](int id) { return input_.cards[at(index_.worker_of[at(id)])]; };
    const auto node = [&](int id) { return card(id) / input_.cards_per_node; };
    if (std::ranges::all_of(members, [&](int id) { return node(id) == node(members.front()); })) return;
    Reduction& reduction = reductions_[at(group)];
    for (const int id : members) {
      if (std::ranges::count(reduction.cards, card(id)) > 0) continue;
      reduction.cards.push_back(card(id));
      const int before = std::exchange(last_reduction_[at(card(id))], group);
      if (before != kNone) reduction.after.push_back(before);
    }
  }

  /// By the messages that were requested so far.
  double end_of(Reduction& reduction) {
    double from = reduction.from;
    for (const int group : reduction.after) {
      const Reduction& other = reductions_[at(group)];
      if (other.end > from && other.step > reduction.step) apart_ = false;
      from = std::max(from, other.end);
    }
    double end = from + reduction.seconds;
    for (const int card : reduction.cards) {
      for (const CardTime* time : {&out_time_[at(card)], &in_time_[at(card)]}) {
        const CardTime::Done done = time->spend(from, reduction.seconds);
        if (done.last_step > reduction.step) apart_ = false;
        end = std::max(end, done.time);
      }
    }
    return reduction.end = end;
  }

  /// Whether the operation is an all-reduce that messages or others have kept from its cards since its end was
  /// reckoned; then it is reckoned anew.
  bool is_postponed(int id) {
    const int group = index_.group_of[at(id)];
    if (group == kNone || reductions_[at(group)].cards.empty()) return false;
    const double end = end_of(reductions_[at(group)]);
    if (end <= timeline_.end[at(id)]) return false;
    reducer_free_[at(index_.worker_of[at(id)])] = end;
    schedule(id, timeline_.start[at(id)], end);
    return true;
  }

  double reduction_seconds(const Op& op) const {
    if (op.kind == OpKind::all_reduce) return input_.stages[pp::index(op.stage)].all_reduce.count();
    return input_.tied_all_reduce.empty() ? 0 : input_.tied_all_reduce[at(op.micro_batch)].count();
  }

  /// When the share all_reduce_overlap of the last backward before this AR is left to run; 0 without a
  /// backward.
  double gradients_flow(int all_reduce) const {
    const Op& op = index_.ops[at(all_reduce)];
    const int worker = index_.worker_of[at(all_reduce)];
    const std::size_t place = hiding_backward(index_.program(worker), at(index_.position(all_reduce)));
    if (place == kNowhere) return 0;
    const std::size_t id = at(index_.worker_begin[at(worker)]) + place;
    const double end = timeline_.end[id];
    double hides = end - timeline_.start[id];
    if (op.kind == OpKind::all_reduce) {
      const std::optional<Seconds>& most = input_.stages[pp::index(op.stage)].hideable;
      if (most) hides = std::min(hides, most->count());
    }
    return end - input_.all_reduce_overlap * hides;
  }

  void finish(int id) {
    const double now = timeline_.end[at(id)];
    const int worker = index_.worker_of[at(id)];
    timeline_.makespan = std::max(timeline_.makespan, now);
    free_[at(worker)] = now;
    idle_[at(worker)] = true;
    end_turn(id, now);
    index_.for_each_consumer(id, [&](int consumer, int edge) {
      const int to = index_.worker_of[at(consumer)];
      const double arrival = to == worker || edge == kNone ? now : send(id, consumer, edge, now);
      ready_[at(consumer)] = std::max(ready_[at(consumer)], arrival);
      if (--missing_[at(consumer)] == 0 && heads_[at(to)] == consumer) start_head(to);
    });
    start_head(worker);
  }

  /// The ports that a message between two workers occupies, and the network cards if it leaves a node; of a
  /// half duplex link in both directions.
  std::span<Port*> ports_between(int from, int to, Duplex duplex) {
    std::size_t count = 0;
    const auto take = [&](std::vector<Port>& out, std::vector<Port>& in, int sender, int receiver) {
      taken_[count++] = &out[at(sender)];
      taken_[count++] = &in[at(receiver)];
      if (duplex == Duplex::full) return;
      taken_[count++] = &in[at(sender)];
      taken_[count++] = &out[at(receiver)];
    };
    take(out_port_, in_port_, from, to);
    if (crosses_nodes(from, to)) take(out_card_, in_card_, input_.cards[at(from)], input_.cards[at(to)]);
    return {taken_.data(), count};
  }

  bool crosses_nodes(int from, int to) const {
    return !input_.cards.empty() &&
           input_.cards[at(from)] / input_.cards_per_node != input_.cards[at(to)] / input_.cards_per_node;
  }

  void pass_cards(int from, int to, Duplex duplex, double start, double end, int step) {
    if (!crosses_nodes(from, to)) return;
    const auto add = [&](std::vector<CardTime>& times, int worker) {
      times[at(input_.cards[at(worker)])].add(start, end, step);
    };
    add(out_time_, from);
    add(in_time_, to);
    if (duplex == Duplex::full) return;
    add(in_time_, from);
    add(out_time_, to);
  }

  /// Requests the transfer now, of which the device's own part is over; returns when the receiver's begins.
  double send(int producer, int consumer, int edge, double now) {
    const auto [bytes, tensors, link] = costs_.message(producer, consumer, edge);
    if (tensors == 0) return now;
    const int from = index_.worker_of[at(producer)];
    const int to = index_.worker_of[at(consumer)];
    const double handled = handling_time(bytes, tensors, link);
    const double left = now - handled;
    double start = left;
    double end = left;
    if (link.bandwidth.value > 0 && bytes > 0) {
      const std::span<Port*> taken = ports_between(from, to, link.duplex);
      const int step = steps_ == 1 ? 0 : step_of(producer);
      for (const Port* port : taken) {
        start = std::max(start, port->free);
        if (port->step > step && port->free > left) apart_ = false;
      }
      end = start + bytes / link.bandwidth.value;
      for (Port* port : taken) *port = {end, step};
      pass_cards(from, to, link.duplex, start, end, step);
    }
    if (keep_messages_ && (steps_ == 1 || step_of(producer) == 0)) {
      timeline_.messages.push_back({WorkerId{from}, WorkerId{to}, index_.ops[at(producer)],
                                    Bytes(std::llround(bytes)), Seconds(start), Seconds(end)});
    }
    return std::max({now, start, end + tensors * link.latency.count() - handled});
  }

  [[noreturn]] void report_deadlock() {
    // A worker that waits inside an AR has already passed it.
    for (int worker = 0; worker < index_.workers(); ++worker) heads_[at(worker)] -= idle_[at(worker)] ? 0 : 1;
    throw Error(ErrorKind::data, deadlock_report(index_, heads_));
  }

  const ProgramIndex& index_;
  const SimulationInput& input_;
  const bool keep_messages_;
  const int steps_;  ///< equal parts of every program
  bool apart_ = true;
  const OpCosts costs_;
  std::priority_queue<End, std::vector<End>, Later> events_;
  std::vector<int> missing_;                  ///< by id: inputs not produced yet
  std::vector<double> ready_;                 ///< by id: latest arrival so far
  std::vector<int> heads_;                    ///< per worker: next id to start
  std::vector<bool> idle_;                    ///< per worker
  std::vector<double> free_;                  ///< per worker: end of its last operation
  std::vector<Port> out_port_, in_port_;      ///< per worker
  std::vector<Port> out_card_, in_card_;      ///< per card
  std::array<Port*, 8> taken_{};              ///< by one message
  std::vector<CardTime> out_time_, in_time_;  ///< per card
  std::vector<int> last_reduction_;           ///< per card, the group; kNone: none yet
  std::vector<double> reducer_free_;          ///< per worker: its reductions follow each other
  std::vector<int> arrived_;                  ///< per group
  std::vector<Reduction> reductions_;         ///< per group
  std::vector<Copier> copiers_;               ///< per worker; empty: weights are not swapped
  std::vector<Turns> turns_;                  ///< per piece of hardware; empty: none is shared
  std::vector<bool> has_turn_;                ///< by id: runs or waits there
  Timeline timeline_;
};

}  // namespace

Timeline run_event_loop(const ProgramIndex& index, const SimulationInput& input, Messages messages) {
  return EventLoop(index, input, messages, 1).run();
}

ChainTimes run_chain(const ProgramIndex& index, const SimulationInput& input, int steps, Messages messages) {
  EventLoop loop(index, input, messages, steps);
  ChainTimes times{std::vector<double>(at(steps), 0), true, loop.run()};
  times.apart = loop.apart();
  for (int id = 0; id < static_cast<int>(index.ops.size()); ++id) {
    double& end = times.ends[at(loop.step_of(id))];
    end = std::max(end, times.timeline.end[at(id)]);
  }
  for (std::size_t i = 1; i < times.ends.size(); ++i)
    times.ends[i] = std::max(times.ends[i], times.ends[i - 1]);
  return times;
}

}  // namespace pp::plan
