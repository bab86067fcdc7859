#include "libplan/schedule/progress.h"

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

/// The first unmet dependency of `id`, kNone for an AR whose group is short of members.
int unmet(const ProgramIndex& index, std::span<const int> heads, int id) {
  const auto waits_for = [&](int other) {
    return other != kNone && other >= heads[at(index.worker_of[at(other)])];
  };
  int found = kNone;
  index.for_each_producer(id, [&](int producer, int) {
    if (found == kNone && waits_for(producer)) found = producer;
  });
  if (const int group = index.group_of[at(id)]; group != kNone) {
    for (int i = index.group_begin[at(group)]; i < index.group_begin[at(group) + 1]; ++i) {
      const int member = index.group_members[at(i)];
      // A worker that has reached its own AR of the group waits like this one.
      if (found == kNone && member != id && waits_for(member) &&
          heads[at(index.worker_of[at(member)])] != member) {
        found = member;
      }
    }
  }
  return found;
}

}  // namespace

void check_progress(const ProgramIndex& index) { Progress(index).run(); }

std::string deadlock_report(const ProgramIndex& index, std::span<const int> heads) {
  std::string lines;
  int executed = 0;
  for (int worker = 0; worker < index.workers(); ++worker) {
    const int head = heads[at(worker)];
    executed += head - index.worker_begin[at(worker)];
    lines.append("\n  worker ").append(std::to_string(worker)).append(": ");
    if (head == index.worker_begin[at(worker) + 1]) {
      lines.append("finished");
      continue;
    }
    lines.append("next ").append(to_text(index.ops[at(head)])).append(" needs ");
    if (const int other = unmet(index, heads, head); other == kNone) {
      lines.append("an all-reduce that another worker does not list");
    } else {
      const std::string owner = std::to_string(index.worker_of[at(other)]);
      lines.append(to_text(index.ops[at(other)])).append(" (worker ").append(owner).append(")");
    }
  }
  return "plan: deadlock after " + std::to_string(executed) + " of " + std::to_string(index.ops.size()) +
         " operations" + lines;
}

}  // namespace pp::plan
