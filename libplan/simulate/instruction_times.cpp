#include "libplan/simulate/instruction_times.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "libplan/simulate/event_loop.h"
#include "libplan/simulate/op_costs.h"
#include "libprofile/core/index.h"

namespace pp::plan {

namespace {

/// Parts of the operations of a set, by kind and stage.
class Parts {
 public:
  explicit Parts(const ProgramIndex& index) : index_(index) {}

  OpParts of(const Op& op) const {
    std::vector<Instruction> list;
    add_instructions(list, op,
                     {.swapped = index_.rules == RuleSet::swapped, .served = index_.rules == RuleSet::served});
    OpParts parts = parts_of(list);
    if (!has_micro_batch(op.kind)) return parts;
    if (!index_.receives(op.kind, op.stage).empty()) parts.waits = InstructionKind::receive;
    if (!index_.sends(op.kind, op.stage).empty()) parts.behind = InstructionKind::send;
    return parts;
  }

 private:
  const ProgramIndex& index_;
};

using Sums = std::map<std::tuple<WorkerId, StageId, InstructionKind>, double>;

/// Adds operations [begin, end) of a worker, `share` of each; ids.
void add_operations(Sums& sums, const ProgramIndex& index, const OpCosts& costs, const Timeline& timeline,
                    int begin, int end, double share) {
  const Parts all(index);
  const int worker = index.worker_of[at(begin)];
  for (int id = begin; id < end; ++id) {
    const Op& op = index.ops[at(id)];
    // Shared weights are of several stages.
    const StageId stage = op.kind == OpKind::tied_all_reduce ? StageId{0} : op.stage;
    const OpParts parts = all.of(op);
    const auto add = [&](InstructionKind kind, double time) {
      if (time > 0) sums[{WorkerId{worker}, stage, kind}] += share * time;
    };
    const double before = id == index.worker_begin[at(worker)] ? 0 : timeline.end[at(id - 1)];
    const double length = timeline.end[at(id)] - timeline.start[at(id)];
    const double received = std::min(length, costs.handles_messages() ? costs.receive_time(id) : 0);
    const double sent = std::min(length - received, costs.handles_messages() ? costs.send_time(id) : 0);
    add(parts.waits, timeline.start[at(id)] - before + received);
    add(parts.works, length - received - sent);
    add(parts.behind, sent);
  }
}

}  // namespace

std::vector<InstructionTime> instruction_times(const SimulationInput& input, int updates) {
  const bool chain = input.programs.synchronous;
  const SimulationInput all = chain ? chained(input, 3) : input;
  const ProgramIndex index = index_simulation(all);
  const Timeline timeline = run_event_loop(index, all, Messages::drop);
  const OpCosts costs(index, all);
  Sums sums;
  for (int worker = 0; worker < index.workers(); ++worker) {
    const int begin = index.worker_begin[at(worker)], end = index.worker_begin[at(worker) + 1];
    const int third = (end - begin) / 3;
    if (third == 0) continue;
    const int from = chain ? end - third : begin + third;
    add_operations(sums, index, costs, timeline, from, from + third, chain ? 1 : 3.0 / updates);
  }
  std::vector<InstructionTime> times;
  for (const auto& [key, time] : sums)
    times.push_back({std::get<0>(key), std::get<1>(key), std::get<2>(key), Seconds(time)});
  return times;
}

}  // namespace pp::plan
