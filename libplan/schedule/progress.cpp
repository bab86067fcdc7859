#include "libplan/schedule/progress.h"

#include <algorithm>

#include "libplan/schedule/instructions.h"
#include "libprofile/core/error.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

class Progress {
 public:
  explicit Progress(const ProgramIndex& index)
      : index_(index),
        heads_(index.worker_begin.begin(), index.worker_begin.end() - 1),
        missing_(index.ops.size(), 0),
        arrived_(at(index.groups()), 0) {
    for (int id = 0; id < static_cast<int>(index.ops.size()); ++id) {
      index.for_each_consumer(id, [&](int consumer, int) { ++missing_[at(consumer)]; });
    }
    for (int worker = index.workers(); worker-- > 0;) to_try_.push_back(worker);
  }

  void run() {
    while (!to_try_.empty()) {
      const int worker = to_try_.back();
      to_try_.pop_back();
      while (can_execute(worker)) execute(heads_[at(worker)]++);
    }
    const bool done = std::equal(heads_.begin(), heads_.end(), index_.worker_begin.begin() + 1);
    if (!done) throw Error(ErrorKind::data, deadlock_report(index_, heads_));
  }

 private:
  /// The first time an AR is a head, it joins its group; the last to join makes all of them executable.
  bool can_execute(int worker) {
    const int id = heads_[at(worker)];
    if (id == index_.worker_begin[at(worker) + 1] || missing_[at(id)] != 0) return false;
    const int group = index_.group_of[at(id)];
    if (group == kNone) return true;
    const int begin = index_.group_begin[at(group)];
    const int members = index_.group_begin[at(group) + 1] - begin;
    if (arrived_[at(group)] == members) return true;
    missing_[at(id)] = 1;  // waits to be woken by the group
    if (++arrived_[at(group)] < members) return false;
    for (int i = begin; i < begin + members; ++i) wake(index_.group_members[at(i)]);
    return true;
  }

  void wake(int id) {
    if (--missing_[at(id)] != 0) return;
    const int worker = index_.worker_of[at(id)];
    if (heads_[at(worker)] == id) to_try_.push_back(worker);
  }

  void execute(int id) {
    index_.for_each_consumer(id, [&](int consumer, int) { wake(consumer); });
  }

  const ProgramIndex& index_;
  std::vector<int> heads_;
  std::vector<int> missing_;  ///< by id: producers not executed yet
  std::vector<int> arrived_;  ///< by group
  std::vector<int> to_try_;
};

/// The first thing that an operation waits for.
struct Wait {
  int other = kNone;  ///< kNone: an AR whose group is short of members
  int edge = kNone;   ///< over which it is sent
};

Wait unmet(const ProgramIndex& index, std::span<const int> heads, int id) {
  const auto waits_for = [&](int other) {
    return other != kNone && other >= heads[at(index.worker_of[at(other)])];
  };
  Wait found;
  index.for_each_producer(id, [&](int producer, int edge) {
    if (found.other == kNone && waits_for(producer)) found = {producer, edge};
  });
  if (const int group = index.group_of[at(id)]; group != kNone) {
    for (int i = index.group_begin[at(group)]; i < index.group_begin[at(group) + 1]; ++i) {
      const int member = index.group_members[at(i)];
      // A worker that has reached its own AR of the group waits like this one.
      if (found.other == kNone && member != id && waits_for(member) &&
          heads[at(index.worker_of[at(member)])] != member) {
        found.other = member;
      }
    }
  }
  return found;
}

/// The instruction of an operation that exchanges over an edge, or that does its work: `receive of B0.0`.
std::string instruction(const ProgramIndex& index, int id, int edge, InstructionKind exchange) {
  InstructionKind kind = exchange;
  if (edge == kNone) {
    std::vector<Instruction> list;
    add_instructions(list, index.ops[at(id)], {});
    kind = parts_of(list).works;
  }
  std::string text(name_of(kind));
  std::ranges::replace(text, '_', ' ');
  return text + " of " + to_text(index.ops[at(id)]);
}

/// The circle that the waits lead into from a worker on; empty: they end at one that waits for none.
std::vector<int> circle_from(const ProgramIndex& index, std::span<const Wait> waits, int worker) {
  std::vector<int> way;
  while (std::ranges::count(way, worker) == 0) {
    if (waits[at(worker)].other == kNone) return {};
    way.push_back(worker);
    worker = index.worker_of[at(waits[at(worker)].other)];
  }
  way.erase(way.begin(), std::ranges::find(way, worker));
  return way;
}

/// The workers that wait for each other, in a circle: `: worker 0 in receive of B0.0 and worker 1 in ... wait
/// for each other`. Empty: there is none.
std::string circle(const ProgramIndex& index, std::span<const int> heads, std::span<const Wait> waits) {
  std::vector<int> way;
  for (int worker = 0; way.empty() && worker < index.workers(); ++worker) {
    way = circle_from(index, waits, worker);
  }
  if (way.empty()) return "";
  std::string text;
  for (std::size_t i = 0; i < way.size(); ++i) {
    const int head = heads[at(way[i])];
    text += i == 0 ? ": " : i + 1 < way.size() ? ", " : " and ";
    text += "worker " + std::to_string(way[i]) + " in " +
            instruction(index, head, waits[at(way[i])].edge, InstructionKind::receive);
  }
  return text + (way.size() > 1 ? " wait for each other" : " waits for what stands behind it");
}

}  // namespace

void check_progress(const ProgramIndex& index) { Progress(index).run(); }

std::string deadlock_report(const ProgramIndex& index, std::span<const int> heads) {
  std::string lines;
  int executed = 0;
  std::vector<Wait> waits(at(index.workers()));
  for (int worker = 0; worker < index.workers(); ++worker) {
    const int head = heads[at(worker)];
    executed += head - index.worker_begin[at(worker)];
    lines += "\n  worker " + std::to_string(worker) + ": ";
    if (head == index.worker_begin[at(worker) + 1]) {
      lines += "finished";
      continue;
    }
    const auto [other, edge] = waits[at(worker)] = unmet(index, heads, head);
    lines += "next " + instruction(index, head, edge, InstructionKind::receive) + " needs ";
    lines += other == kNone ? "an all-reduce that another worker does not list"
                            : instruction(index, other, edge, InstructionKind::send) + " (worker " +
                                  std::to_string(index.worker_of[at(other)]) + ")";
  }
  return "plan: deadlock after " + std::to_string(executed) + " of " + std::to_string(index.ops.size()) +
         " operations" + circle(index, heads, waits) + lines;
}

}  // namespace pp::plan
