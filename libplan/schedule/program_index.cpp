#include "libplan/schedule/program_index.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>

#include "libplan/schedule/completeness.h"
#include "libplan/schedule/instructions.h"
#include "libprofile/core/error.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

[[noreturn]] void fail(const std::string& message) { throw Error(ErrorKind::data, message); }

std::string name(StageId stage) { return "stage " + std::to_string(number(stage)); }

/// Every stage has workers, each of them exists and is named once.
void check_stages(const ProgramSet& set) {
  const int workers = static_cast<int>(set.workers.size());
  std::vector<int> seen_in(set.workers.size(), kNone);
  for (int s = 0; s < static_cast<int>(set.stage_workers.size()); ++s) {
    const auto refuse = [s](const std::string& text) { fail(name(StageId{s}) + text); };
    if (set.stage_workers[at(s)].empty()) refuse(" has no worker; give it at least one");
    for (const WorkerId worker : set.stage_workers[at(s)]) {
      const int w = number(worker);
      if (w < 0 || w >= workers) {
        refuse(" is on worker " + std::to_string(w) + ", but the workers are 0 to " +
               std::to_string(workers - 1));
      }
      if (std::exchange(seen_in[at(w)], s) == s)
        refuse(" names worker " + std::to_string(w) + " twice; name it once");
    }
  }
}

void add_dependency(ProgramIndex& index, StageId from, StageId to) {
  const Dependency edge{number(from), number(to)};
  if (edge.from < 0 || edge.from >= edge.to || edge.to >= index.stages) {
    fail("skip from " + name(from) + " to " + name(to) + ": it must lead to a later one of the " +
         std::to_string(index.stages) + " stages");
  }
  if (std::ranges::find(index.dependencies, edge) == index.dependencies.end())
    index.dependencies.push_back(edge);
}

void connect_stages(ProgramIndex& index, const ProgramSet& set,
                    std::span<const std::pair<StageId, StageId>> skips) {
  for (int s = 0; s + 1 < index.stages; ++s) index.dependencies.push_back({s, s + 1});
  for (const auto& [from, to] : set.skips) add_dependency(index, from, to);
  for (const auto& [from, to] : skips) add_dependency(index, from, to);
  index.edges_out.resize(at(index.stages));
  index.edges_in.resize(at(index.stages));
  for (std::size_t e = 0; e < index.dependencies.size(); ++e) {
    index.edges_out[at(index.dependencies[e].from)].push_back(static_cast<int>(e));
    index.edges_in[at(index.dependencies[e].to)].push_back(static_cast<int>(e));
  }
  if (index.tokens.groups > 0) index.dependencies.push_back({index.stages - 1, 0});
}

void flatten(ProgramIndex& index, const ProgramSet& set) {
  std::size_t total = 0;
  for (const Program& program : set.workers) total += program.size();
  if (total > at(std::numeric_limits<int>::max())) fail("the programs hold more than 2147483647 operations");
  index.ops.reserve(total);
  index.worker_of.reserve(total);
  index.worker_begin.push_back(0);
  for (std::size_t w = 0; w < set.workers.size(); ++w) {
    index.ops.insert(index.ops.end(), set.workers[w].begin(), set.workers[w].end());
    index.worker_of.resize(index.ops.size(), static_cast<int>(w));
    index.worker_begin.push_back(static_cast<int>(index.ops.size()));
  }
}

std::string worker_list(std::span<const WorkerId> workers) {
  std::string text = workers.size() == 1 ? "worker " : "workers ";
  for (std::size_t i = 0; i < workers.size(); ++i) {
    text.append(i == 0 ? "" : ", ").append(std::to_string(number(workers[i])));
  }
  return text;
}

void check_op(const ProgramSet& set, const ProgramIndex& index, int id, const std::vector<int>& held_by) {
  const Op& op = index.ops[at(id)];
  const auto refuse = [&](const std::string& text) { fail(locate(index, id) + ": " + text); };
  if (number(op.stage) < 0 || number(op.stage) >= index.stages) {
    refuse(name(op.stage) + " does not exist; there are " + std::to_string(index.stages) + " stages, from 0");
  }
  if (held_by[pp::index(op.stage)] != index.worker_of[at(id)]) {
    refuse(name(op.stage) + " is not on this worker; move the operation to " +
           worker_list(set.stage_workers[pp::index(op.stage)]));
  }
  if (op.kind == OpKind::tied_all_reduce) return;
  if (op.micro_batch < 0 || op.micro_batch >= index.micro_batches) {
    refuse("micro-batch " + std::to_string(op.micro_batch) + " does not exist; there are " +
           std::to_string(index.micro_batches) + ", from 0");
  }
}

/// A group's stages exist, ascend and are several; replicas of one update do not wait for each other's weights.
void check_tied(const ProgramSet& set, const ProgramIndex& index) {
  for (std::size_t k = 0; k < index.tied.size(); ++k) {
    const std::vector<int>& group = index.tied[k];
    const auto refuse = [&](const std::string& text) { fail("tied group " + std::to_string(k) + ": " + text); };
    if (group.size() < 2 || std::ranges::adjacent_find(group, std::greater_equal{}) != group.end())
      refuse("list the stages that share the parameter, at least two, in ascending order");
    if (group.front() < 0 || group.back() >= index.stages) {
      refuse("stage " + std::to_string(group.front() < 0 ? group.front() : group.back()) +
             " does not exist; there are " + std::to_string(index.stages) + " stages, from 0");
    }
    if (!set.synchronous)
      refuse("copies drift apart without a flush; put all users of the parameter in one stage");
  }
}

/// Gives every ARg the worker's first stage of its group.
void place_tied(ProgramIndex& index) {
  for (int id = 0; id < static_cast<int>(index.ops.size()); ++id) {
    Op& op = index.ops[at(id)];
    if (op.kind != OpKind::tied_all_reduce) continue;
    const auto refuse = [&](const std::string& text) { fail(locate(index, id) + ": " + text); };
    if (at(op.micro_batch) >= index.tied.size()) {
      refuse("group " + std::to_string(op.micro_batch) + " does not exist; there are " +
             std::to_string(index.tied.size()) + " tied groups, from 0");
    }
    const std::vector<int>& stages = index.stages_of_worker[at(index.worker_of[at(id)])];
    const auto found = std::ranges::find_first_of(stages, index.tied[at(op.micro_batch)]);
    if (found == stages.end()) refuse("this worker holds no stage of the group; leave it out");
    op.stage = StageId{*found};
  }
}

void check_placement(const ProgramSet& set, const ProgramIndex& index) {
  std::vector<int> held_by(at(index.stages), kNone);  // the worker in hand, for its own stages
  for (int worker = 0; worker < index.workers(); ++worker) {
    for (const int s : index.stages_of_worker[at(worker)]) held_by[at(s)] = worker;
    for (int id = index.worker_begin[at(worker)]; id < index.worker_begin[at(worker) + 1]; ++id) {
      check_op(set, index, id, held_by);
    }
  }
}

Slot slot_of(OpKind kind) {
  switch (kind) {
    case OpKind::forward: return Slot::forward;
    case OpKind::weight_gradient: return Slot::weight_gradient;
    case OpKind::recompute: return Slot::recompute;
    default: return Slot::backward;
  }
}

void insert(ProgramIndex& index, int id) {
  const Op& op = index.ops[at(id)];
  auto& table = index.slots[at(slot_of(op.kind))];
  int& first = table[pp::index(op.stage) * at(index.micro_batches) + at(op.micro_batch)];
  if (first != kNone && index.worker_of[at(first)] == index.worker_of[at(id)]) {
    const Op& other = index.ops[at(first)];
    fail(
        locate(index, id) + ": operation " + std::to_string(index.position(first)) + " is " + to_text(other) +
        (other == op ? " already; list it once" : " and computes the same gradient; list B alone, or I and W"));
  }
  if (first != kNone) {
    if (index.next.empty()) index.next.resize(index.ops.size(), kNone);
    index.next[at(id)] = first;
  }
  first = id;
}

/// Workers last to first, so that the operations of a split micro-batch are linked by ascending worker.
void fill_slots(ProgramIndex& index) {
  for (auto& table : index.slots) table.assign(at(index.stages) * at(index.micro_batches), kNone);
  for (int worker = index.workers(); worker-- > 0;) {
    for (int id = index.worker_begin[at(worker)]; id < index.worker_begin[at(worker) + 1]; ++id) {
      if (has_micro_batch(index.ops[at(id)].kind)) insert(index, id);
    }
  }
}

void slice_split_micro_batches(ProgramIndex& index, const ProgramSet& set) {
  if (index.next.empty()) return;
  index.slices.resize(index.ops.size());
  for (int id = 0; id < static_cast<int>(index.ops.size()); ++id) {
    const Op& op = index.ops[at(id)];
    if (!has_micro_batch(op.kind)) continue;
    const int first = index.first(Slot::forward, number(op.stage), op.micro_batch);
    if (first == kNone || index.following(first) == kNone) continue;
    const auto& workers = set.stage_workers[pp::index(op.stage)];
    const auto found = std::ranges::find(workers, WorkerId{index.worker_of[at(id)]});
    index.slices[at(id)] = {static_cast<int>(found - workers.begin()), static_cast<int>(workers.size())};
  }
}

/// Workers that join the all-reduces of a key: stage by stage, then the tied groups.
std::vector<int> reducing_workers(const ProgramIndex& index) {
  std::vector<int> workers = index.workers_of_stage;
  for (const std::vector<int>& group : index.tied) {
    const auto joins = [&](const std::vector<int>& stages) {
      return std::ranges::find_first_of(stages, group) != stages.end();
    };
    workers.push_back(static_cast<int>(std::ranges::count_if(index.stages_of_worker, joins)));
  }
  return workers;
}

void group_all_reduces(ProgramIndex& index) {
  const std::vector<int> workers = reducing_workers(index);
  const auto key_of = [&](const Op& op) {
    return op.kind == OpKind::tied_all_reduce ? at(index.stages + op.micro_batch) : pp::index(op.stage);
  };
  std::vector<int> most(workers.size(), 0);  // listed by one worker, per key
  index.group_of.assign(index.ops.size(), kNone);
  for (int worker = 0; worker < index.workers(); ++worker) {
    std::map<std::size_t, int> count;
    for (int id = index.worker_begin[at(worker)]; id < index.worker_begin[at(worker) + 1]; ++id) {
      const Op& op = index.ops[at(id)];
      if (is_all_reduce(op.kind)) index.group_of[at(id)] = count[key_of(op)]++;
    }
    for (const auto& [key, listed] : count) most[key] = std::max(most[key], listed);
  }

  index.group_begin.push_back(0);
  std::vector<int> first_group(workers.size(), 0);
  for (std::size_t key = 0; key < workers.size(); ++key) {
    first_group[key] = index.groups();
    for (int k = 0; k < most[key]; ++k) index.group_begin.push_back(index.group_begin.back() + workers[key]);
  }
  index.group_members.assign(at(index.group_begin.back()), kNone);
  std::vector<int> filled(at(index.groups()), 0);
  for (std::size_t id = 0; id < index.ops.size(); ++id) {
    if (index.group_of[id] == kNone) continue;
    const int group = index.group_of[id] += first_group[key_of(index.ops[id])];
    index.group_members[at(index.group_begin[at(group)] + filled[at(group)]++)] = static_cast<int>(id);
  }
}

/// The E of the worker that ran the stage's backward of the micro-batch before this one, behind it, if that was
/// in an earlier step.
int evict_before(const ProgramIndex& index, int stage, int micro_batch) {
  const int backward = index.first(Slot::backward, stage, micro_batch - 1);
  const int later = index.first(Slot::backward, stage, micro_batch);
  if (backward == kNone) return kNone;
  const int end = index.worker_begin[at(index.worker_of[at(backward)] + 1)];
  for (int id = backward; id < end && id != later; ++id) {
    if (index.ops[at(id)] == Op{OpKind::evict, StageId{stage}, 0}) return id;
  }
  return kNone;
}

std::vector<bool> updates_of_worker(const ProgramIndex& index, int worker) {
  std::vector<bool> updates(at(index.stages), false);
  for (int id = index.worker_begin[at(worker)]; id < index.worker_begin[at(worker + 1)]; ++id) {
    if (index.ops[at(id)].kind == OpKind::update) updates[pp::index(index.ops[at(id)].stage)] = true;
  }
  return updates;
}

void find_states(ProgramIndex& index) {
  if (index.rules != RuleSet::swapped) return;
  for (int worker = 0; worker < index.workers(); ++worker) {
    const std::vector<bool> trained = trained_stays(index.program(worker));
    index.carries_state.insert(index.carries_state.end(), trained.begin(), trained.end());
  }
}

/// A load serves the operations behind it, so the update that it waits for is that of the micro-batch before
/// the first of them. A worker that updates the stage itself has the E in front of the L.
void connect_reloads(ProgramIndex& index) {
  if (index.rules != RuleSet::swapped) return;
  index.load_waits.assign(index.ops.size(), kNone);
  for (int worker = 0; worker < index.workers(); ++worker) {
    const std::vector<bool> updates = updates_of_worker(index, worker);
    std::vector<int> next(at(index.stages), kNone);  // micro-batch of the stage's next operation
    for (int id = index.worker_begin[at(worker + 1)]; id-- > index.worker_begin[at(worker)];) {
      const Op& op = index.ops[at(id)];
      int& micro_batch = next[pp::index(op.stage)];
      if (has_micro_batch(op.kind)) micro_batch = op.micro_batch;
      if (op.kind != OpKind::load || updates[pp::index(op.stage)] || micro_batch < 1) continue;
      const int evict = evict_before(index, number(op.stage), micro_batch);
      if (evict == kNone) continue;
      index.load_waits[at(id)] = evict;
      index.reloads.emplace_back(evict, id);
    }
  }
  std::ranges::sort(index.reloads);
}

/// An operation of a stage with one input and one output.
OpShape make_shape(OpKind kind) {
  const std::vector<Port> in{{.edge = 0}}, out{{.edge = 1}};
  const std::vector<StagePorts> ports{{in, out, out, in}};
  std::vector<Instruction> list;
  add_instructions(list, {kind, StageId{0}}, {.ports = ports});
  const auto ends = [&](InstructionKind what) {
    const auto found = std::ranges::find(list, what, &Instruction::kind);
    if (found == list.end()) return OpShape::Ends::none;
    return found->ports.front().edge == 0 ? OpShape::Ends::inputs : OpShape::Ends::outputs;
  };
  return {ends(InstructionKind::receive), ends(InstructionKind::send), parts_of(list).works};
}

}  // namespace

const std::array<OpShape, EnumNames<OpKind>::table.size()> kShapes = [] {
  std::array<OpShape, EnumNames<OpKind>::table.size()> shapes{};
  for (std::size_t kind = 0; kind < shapes.size(); ++kind) shapes[kind] = make_shape(static_cast<OpKind>(kind));
  return shapes;
}();

double overlap(Slice a, Slice b) {
  const double begin = std::max(double(a.rank) / a.parts, double(b.rank) / b.parts);
  const double end = std::min(double(a.rank + 1) / a.parts, double(b.rank + 1) / b.parts);
  return std::max(0.0, end - begin);
}

std::string locate(const ProgramIndex& index, int id) {
  return "worker " + std::to_string(index.worker_of[at(id)]) + ", operation " +
         std::to_string(index.position(id)) + " (" + to_text(index.ops[at(id)]) + ")";
}

ProgramIndex index_programs(const ProgramSet& set, std::span<const std::pair<StageId, StageId>> skips) {
  ProgramIndex index;
  index.rules = set.rules;
  index.recompute_start = set.recompute_start;
  index.tokens = set.tokens;
  index.stages = static_cast<int>(set.stage_workers.size());
  index.micro_batches = set.micro_batches;
  if (index.stages == 0) fail("there are no stages; a set of programs needs at least one");
  if (set.micro_batches < 1) {
    fail("micro_batches = " + std::to_string(set.micro_batches) + "; a set of programs needs at least one");
  }
  check_stages(set);
  index.stages_of_worker.resize(set.workers.size());
  for (std::size_t s = 0; s < set.stage_workers.size(); ++s) {
    index.workers_of_stage.push_back(static_cast<int>(set.stage_workers[s].size()));
    for (const WorkerId w : set.stage_workers[s])
      index.stages_of_worker[pp::index(w)].push_back(static_cast<int>(s));
  }
  connect_stages(index, set, skips);
  for (const std::vector<StageId>& group : set.tied) {
    auto& stages = index.tied.emplace_back();
    for (const StageId stage : group) stages.push_back(number(stage));
  }
  check_tied(set, index);
  flatten(index, set);
  place_tied(index);
  check_placement(set, index);
  check_table_size(set, index);
  fill_slots(index);
  slice_split_micro_batches(index, set);
  check_micro_batches(set, index);
  group_all_reduces(index);
  connect_reloads(index);
  find_states(index);
  return index;
}

}  // namespace pp::plan
