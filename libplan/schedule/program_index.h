// A set of programs with its dependencies as flat arrays: what the validator and the simulator walk. Operations
// get ids, worker by worker, in list order. Who needs whom is read off (stage, micro-batch) tables; it is never
// stored per pair.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "libplan/schedule/instructions.h"
#include "libplan/schedule/program_set.h"
#include "libprofile/core/index.h"

namespace pp::plan {

/// No operation, no edge, no group.
inline constexpr int kNone = -1;
/// What the instructions of all operations of a kind have in common: the compact form of their lists that
/// thousands of simulations walk.
struct OpShape {
  enum class Ends { none, inputs, outputs };  ///< of the edges into the stage; out of it

  Ends receives = Ends::none, sends = Ends::none;
  InstructionKind works{};  ///< the one that has a price of its own
};
/// By OpKind, made of the lists that add_instructions() makes.
extern const std::array<OpShape, EnumNames<OpKind>::table.size()> kShapes;
inline const OpShape& shape_of(OpKind kind) { return kShapes[at(kind)]; }

/// Tensors flow from stage `from` to stage `to`, gradients back.
struct Dependency {
  int from = 0;
  int to = 0;
  bool operator==(const Dependency&) const = default;
};

/// What an owner does with a micro-batch on a stage, each at most once. B and I share a slot: both yield the
/// input gradient.
enum class Slot { forward, backward, weight_gradient, recompute };

/// A micro-batch that every worker of the stage lists is split over them: slice `rank` of `parts`. Otherwise 0
/// of 1.
struct Slice {
  int rank = 0;
  int parts = 1;
};
/// The share of the micro-batch that both slices hold, 0..1.
double overlap(Slice a, Slice b);

/// Built by index_programs(); read only.
struct ProgramIndex {
  RuleSet rules = RuleSet::standard;
  RecomputeStart recompute_start = RecomputeStart::early;
  TokenLoop tokens;
  int stages = 0;
  int micro_batches = 0;
  std::vector<Op> ops;            ///< by id
  std::vector<int> worker_of;     ///< by id
  std::vector<int> worker_begin;  ///< [workers + 1]: ids of worker w are [worker_begin[w], worker_begin[w + 1])
  std::vector<int> workers_of_stage;               ///< how many
  std::vector<std::vector<int>> tied;              ///< per group, its stages, ascending
  std::vector<std::vector<int>> stages_of_worker;  ///< which, ascending

  std::array<std::vector<int>, 4> slots;  ///< per Slot, [stage * micro_batches + m]: id, or kNone
  std::vector<int> next;      ///< by id: same slot and micro-batch on the next worker; empty: nothing is split
  std::vector<Slice> slices;  ///< by id; empty: nothing is split

  /// "Edges": the chain s -> s+1 as 0..stages-2, then the skips, then from the last stage back to the first if
  /// there is a token loop.
  std::vector<Dependency> dependencies;
  std::vector<std::vector<int>> edges_out;  ///< per stage, ascending
  std::vector<std::vector<int>> edges_in;

  /// All-reduces: the k-th AR of a worker joins the k-th AR of every other worker of the stage (ARg: of every
  /// worker of its stages). A group with fewer members than workers cannot complete.
  std::vector<int> group_of;       ///< by id; kNone: not an all-reduce
  std::vector<int> group_begin;    ///< [groups + 1], into group_members
  std::vector<int> group_members;  ///< ids, by worker; kNone where a worker has no k-th AR

  /// swapped: a worker that does not update a stage itself loads what the last step's update has left, which is
  /// on the host once the worker of the update has evicted it. Pairs of E and L, by E.
  std::vector<std::pair<int, int>> reloads;
  std::vector<int> load_waits;  ///< by id: the E of L, or kNone; empty: not swapped
  /// By id of L and E: the weights are updated between them, so the optimizer's state comes and goes with them.
  /// Empty: not swapped.
  std::vector<bool> carries_state;

  /// Edges over which the instructions of an operation receive and send, ascending.
  std::span<const int> receives(OpKind kind, StageId stage) const {
    return over(shape_of(kind).receives, stage);
  }
  std::span<const int> sends(OpKind kind, StageId stage) const { return over(shape_of(kind).sends, stage); }

  int workers() const { return static_cast<int>(worker_begin.size()) - 1; }
  int groups() const { return static_cast<int>(group_begin.size()) - 1; }
  std::span<const Op> program(int worker) const {
    return std::span(ops).subspan(at(worker_begin[at(worker)]),
                                  at(worker_begin[at(worker) + 1] - worker_begin[at(worker)]));
  }
  /// Position of `id` in its worker's list.
  int position(int id) const { return id - worker_begin[at(worker_of[at(id)])]; }
  Slice slice(int id) const { return slices.empty() ? Slice{} : slices[at(id)]; }
  int first(Slot slot, int stage, int micro_batch) const {
    return slots[at(slot)][at(stage) * at(micro_batches) + at(micro_batch)];
  }
  int following(int id) const { return next.empty() ? kNone : next[at(id)]; }
  /// The operation of `slot` for the stage and micro-batch of `id` on the same worker, kNone if there is none.
  int local(Slot slot, int id) const {
    int found = first(slot, number(ops[at(id)].stage), ops[at(id)].micro_batch);
    while (found != kNone && worker_of[at(found)] != worker_of[at(id)]) found = following(found);
    return found;
  }

  /// Calls visit(producer, edge) for all that `id` waits for; edge is kNone within one stage. AR, U and E wait
  /// for nothing here: they take their turn in the list, and AR for its group.
  template <class Visit>
  void for_each_producer(int id, Visit visit) const;
  /// The reverse relation: visit(consumer, edge).
  template <class Visit>
  void for_each_consumer(int id, Visit visit) const;

 private:
  std::span<const int> over(OpShape::Ends ends, StageId stage) const {
    if (ends == OpShape::Ends::none) return {};
    return (ends == OpShape::Ends::inputs ? edges_in : edges_out)[pp::index(stage)];
  }
  /// Frames of a clocked set move on by one stage per step.
  int lag() const { return rules == RuleSet::clocked ? 1 : 0; }
  bool is_late(int recompute) const { return recompute != kNone && recompute_start == RecomputeStart::late; }
  int token_edge() const { return static_cast<int>(dependencies.size()) - 1; }
  /// The forward that a backward or recompute continues.
  int forward_of(int id) const {
    return rules == RuleSet::swapped ? first(Slot::forward, number(ops[at(id)].stage), ops[at(id)].micro_batch)
                                     : local(Slot::forward, id);
  }
  /// What continues a forward: its recompute if there is one, else its backward.
  int continuation(int forward) const;

  template <class Visit>
  static void visit_found(int id, Visit visit) {
    if (id != kNone) visit(id, kNone);
  }
  template <class Visit>
  void visit_edge(Slot slot, int stage, int micro_batch, int id, int edge, Visit visit) const {
    if (micro_batch < 0 || micro_batch >= micro_batches) return;
    for (int other = first(slot, stage, micro_batch); other != kNone; other = following(other)) {
      if (slices.empty() || overlap(slice(other), slice(id)) > 0) visit(other, edge);
    }
  }
  /// What operation `id` receives as one of its kind does: activations from earlier stages, or gradients from
  /// later ones.
  template <class Visit>
  void visit_received(int id, OpKind kind, Visit visit) const {
    const Op& op = ops[at(id)];
    const bool forward = kind == OpKind::forward;
    for (const int e : receives(kind, op.stage)) {
      const Dependency& edge = dependencies[at(e)];
      visit_edge(forward ? Slot::forward : Slot::backward, forward ? edge.from : edge.to,
                 op.micro_batch - lag(), id, e, visit);
    }
  }
  /// Who receives what it sends.
  template <class Visit>
  void visit_receivers(int id, Visit visit) const {
    const Op& op = ops[at(id)];
    const bool forward = op.kind == OpKind::forward;
    for (const int e : sends(op.kind, op.stage)) {
      const Dependency& edge = dependencies[at(e)];
      visit_edge(forward ? Slot::forward : Slot::backward, forward ? edge.to : edge.from,
                 op.micro_batch + lag(), id, e, visit);
    }
  }
  template <class Visit>
  void visit_previous_token(int id, Visit visit) const;
  template <class Visit>
  void visit_next_token(int id, Visit visit) const;
};

/// Checks stages, placement and completeness of F, B, I, W, R. `skips` are dependencies besides the chain and
/// set.skips; repeated ones count once. O(operations + stages * micro-batches). Throws pp::Error (data).
ProgramIndex index_programs(const ProgramSet& set, std::span<const std::pair<StageId, StageId>> skips = {});

/// `worker 1, operation 4 (B1.3)`: how messages name an operation.
std::string locate(const ProgramIndex& index, int id);

inline int ProgramIndex::continuation(int forward) const {
  const auto found = [&](Slot slot) {
    const Op& op = ops[at(forward)];
    return rules == RuleSet::swapped ? first(slot, number(op.stage), op.micro_batch) : local(slot, forward);
  };
  const int recompute = found(Slot::recompute);
  return recompute != kNone ? recompute : found(Slot::backward);
}

template <class Visit>
void ProgramIndex::visit_previous_token(int id, Visit visit) const {
  const Op& op = ops[at(id)];
  if (tokens.groups == 0 || op.stage != StageId{0}) return;
  const int token = op.micro_batch / tokens.groups;
  const int previous = tokens.barrier ? token * tokens.groups - 1 : op.micro_batch - tokens.groups;
  visit_edge(Slot::forward, stages - 1, previous, id, token_edge(), visit);
}

template <class Visit>
void ProgramIndex::visit_next_token(int id, Visit visit) const {
  const Op& op = ops[at(id)];
  if (tokens.groups == 0 || number(op.stage) != stages - 1) return;
  if (!tokens.barrier) {
    visit_edge(Slot::forward, 0, op.micro_batch + tokens.groups, id, token_edge(), visit);
  } else if ((op.micro_batch + 1) % tokens.groups == 0) {
    for (int g = 1; g <= tokens.groups; ++g)
      visit_edge(Slot::forward, 0, op.micro_batch + g, id, token_edge(), visit);
  }
}

template <class Visit>
void ProgramIndex::for_each_producer(int id, Visit visit) const {
  const Op& op = ops[at(id)];
  switch (op.kind) {
    case OpKind::forward:
      visit_received(id, op.kind, visit);
      visit_previous_token(id, visit);
      break;
    case OpKind::backward:
    case OpKind::input_gradient: {
      const int recompute = local(Slot::recompute, id);
      visit_found(recompute != kNone ? recompute : forward_of(id), visit);
      if (!is_late(recompute)) visit_received(id, op.kind, visit);
      break;
    }
    case OpKind::weight_gradient: visit_found(local(Slot::backward, id), visit); break;
    case OpKind::recompute:
      visit_found(forward_of(id), visit);
      if (is_late(id)) visit_received(id, OpKind::backward, visit);
      break;
    case OpKind::load: visit_found(load_waits.empty() ? kNone : load_waits[at(id)], visit); break;
    case OpKind::all_reduce:
    case OpKind::tied_all_reduce:
    case OpKind::update:
    case OpKind::evict: break;
  }
}

template <class Visit>
void ProgramIndex::for_each_consumer(int id, Visit visit) const {
  const Op& op = ops[at(id)];
  switch (op.kind) {
    case OpKind::forward:
      visit_found(continuation(id), visit);
      visit_receivers(id, visit);
      visit_next_token(id, visit);
      break;
    case OpKind::backward:
    case OpKind::input_gradient:
      visit_found(local(Slot::weight_gradient, id), visit);
      visit_receivers(id, [&](int backward, int edge) {
        const int recompute = local(Slot::recompute, backward);
        visit(is_late(recompute) ? recompute : backward, edge);
      });
      break;
    case OpKind::recompute: visit_found(local(Slot::backward, id), visit); break;
    case OpKind::evict:
      for (auto pair = std::ranges::lower_bound(reloads, std::pair(id, 0));
           pair != reloads.end() && pair->first == id; ++pair)
        visit(pair->second, kNone);
      break;
    case OpKind::weight_gradient:
    case OpKind::all_reduce:
    case OpKind::tied_all_reduce:
    case OpKind::update:
    case OpKind::load: break;
  }
}

}  // namespace pp::plan
