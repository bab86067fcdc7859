// Lowering: what an operation does by itself, then a pass for each feature that looks at its place.
#include "libplan/schedule/instructions.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

namespace pp::plan {

namespace {

using enum InstructionKind;
using List = std::vector<Instruction>;

bool has(const std::vector<bool>& stages, StageId stage) { return !stages.empty() && stages[index(stage)]; }

class OwnInstructions {
 public:
  OwnInstructions(List& list, const Op& op, const Lowering& lowering)
      : list_(list), op_(op), lowering_(lowering) {}

  void add() {
    if (lowering_.swapped && op_.kind != OpKind::tied_all_reduce) add(ready);
    switch (op_.kind) {
      case OpKind::forward: return add_forward();
      case OpKind::recompute:
        add_feed();
        if (lowering_.swapped) add(unstash);
        return add(recompute);
      case OpKind::backward: return add_backward(backward);
      case OpKind::input_gradient: return add_backward(input_gradient);
      case OpKind::weight_gradient: return add(weight_gradient);
      case OpKind::all_reduce: return add(reduce);
      case OpKind::tied_all_reduce: return add(tie);
      case OpKind::update:
        add(lowering_.served ? push : update);
        if (has(lowering_.shares_state, op_.stage)) add(spread);
        return;
      case OpKind::load: return add(load);
      case OpKind::evict: return add(evict);
    }
  }

 private:
  void add(InstructionKind kind) { list_.push_back({kind}); }
  void add_feed() {
    if (has(lowering_.reads_data, op_.stage)) add(feed);
  }
  const StagePorts& ports() const {
    static const StagePorts kNone{};
    return lowering_.ports.empty() ? kNone : lowering_.ports[index(op_.stage)];
  }
  void exchange(InstructionKind kind, Direction direction, const std::vector<Port>& over, int lag = 0) {
    if (!over.empty()) list_.push_back({.kind = kind, .direction = direction, .ports = over, .lag = lag});
  }

  void add_forward() {
    exchange(receive, lowering_.forwards, ports().inputs, lowering_.activation_lag);
    add_feed();
    if (lowering_.forwards == Direction::evaluation) {
      add(evaluate);
      if (lowering_.scores == op_.stage) add(score);
      if (lowering_.inference) add(hand_out);
    } else {
      if (lowering_.served) add(fetch);
      add(forward);
      if (lowering_.swapped) add(stash);
    }
    exchange(send, lowering_.forwards, ports().outputs);
  }

  void add_backward(InstructionKind kind) {
    exchange(receive, Direction::gradient, ports().output_gradients, lowering_.gradient_lag);
    add(kind);
    exchange(send, Direction::gradient, ports().input_gradients);
  }

  List& list_;
  const Op& op_;
  const Lowering& lowering_;
};

List::iterator find(List& list, InstructionKind kind) {
  return std::ranges::find(list, kind, &Instruction::kind);
}

Program joined(const Stream& stream) {
  Program all = stream.prologue;
  all.insert(all.end(), stream.body.begin(), stream.body.end());
  return all;
}

/// Before the first update of a step, which no other worker's begins before either.
void add_judge(InstructionLists& lists) {
  for (List& list : lists) {
    const auto at = find(list, update);
    if (at == list.end()) continue;
    list.insert(at, {judge});
    return;
  }
}

/// A body is followed by itself: its all-reduce may stand in front of the backward.
void add_begin_reduce(InstructionLists& lists, const Stream& stream, const Lowering& lowering) {
  if (lowering.hides_sums.empty()) return;
  Program ops = joined(stream);
  ops.insert(ops.end(), stream.body.begin(), stream.body.end());
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (ops[i].kind != OpKind::all_reduce || !has(lowering.hides_sums, ops[i].stage)) continue;
    const std::size_t found = hiding_backward(ops, i);
    if (found == kNowhere) continue;
    List& list = lists[found < lists.size() ? found : found - stream.body.size()];
    const auto pass = find(list, ops[found].kind == OpKind::backward ? backward : weight_gradient);
    if (pass == list.begin() || (pass - 1)->kind != begin_reduce) list.insert(pass, {begin_reduce});
  }
}

/// Weights come and go; an updated stage goes back at once, unless it leaves next.
void add_swaps(InstructionLists& lists, const Program& ops) {
  const std::vector<bool> trained = trained_stays(ops);
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const Op &op = ops[i], &next = ops[(i + 1) % ops.size()];
    if (const auto at = find(lists[i], load); at != lists[i].end())
      at->trains = trained[i], at->waits = next.stage == op.stage;
    if (const auto at = find(lists[i], evict); at != lists[i].end()) at->trains = trained[i];
    const bool leaves = next == Op{OpKind::evict, op.stage};
    if (op.kind == OpKind::update && !leaves) lists[i].push_back({write_back});
  }
}

std::string words_of(const Instruction& one) {
  std::string text(name_of(one.kind));
  std::ranges::replace(text, '_', ' ');
  for (const Port& port : one.ports) {
    if (&port != one.ports.data()) text += " and";
    text += (one.direction == Direction::gradient ? " gradient " : " activation ") + std::to_string(port.edge) +
            (one.kind == send ? " to" : " from") + " stage " + std::to_string(number(port.peer));
  }
  return text;
}

}  // namespace

void add_instructions(List& list, const Op& op, const Lowering& lowering) {
  OwnInstructions(list, op, lowering).add();
}

InstructionLists lower(const Stream& stream, const Lowering& lowering) {
  const Program ops = joined(stream);
  InstructionLists lists(ops.size());
  for (std::size_t i = 0; i < ops.size(); ++i) add_instructions(lists[i], ops[i], lowering);
  if (lowering.judged) add_judge(lists);
  add_begin_reduce(lists, stream, lowering);
  if (lowering.swapped) add_swaps(lists, ops);
  return lists;
}

OpParts parts_of(std::span<const Instruction> list) {
  constexpr std::array kInFront{receive, fetch, judge, ready, feed, begin_reduce, unstash};
  const auto has = [&](InstructionKind kind) {
    return std::ranges::find(list, kind, &Instruction::kind) != list.end();
  };
  const auto works = std::ranges::find_if(
      list, [&](const Instruction& one) { return std::ranges::find(kInFront, one.kind) == kInFront.end(); });
  OpParts parts{works->kind, works->kind, has(send) ? send : works->kind};
  const auto waits = std::find_if(kInFront.begin(), kInFront.begin() + 5, has);
  if (waits != kInFront.begin() + 5) parts.waits = *waits;
  return parts;
}

std::size_t hiding_backward(std::span<const Op> program, std::size_t all_reduce) {
  const StageId stage = program[all_reduce].stage;
  for (std::size_t i = all_reduce; i-- > 0;) {
    if (program[i].stage != stage) continue;
    if (program[i].kind == OpKind::update) break;
    if (completes_backward(program[i].kind)) return i;
  }
  return kNowhere;
}

std::vector<bool> trained_stays(std::span<const Op> program) {
  std::vector<bool> trained(program.size(), false);
  std::map<StageId, bool> updated;
  std::map<StageId, std::size_t> evicted;
  for (std::size_t i = program.size(); i-- > 0;) {
    const Op& op = program[i];
    if (op.kind == OpKind::evict) evicted[op.stage] = i, updated[op.stage] = false;
    if (op.kind == OpKind::update) updated[op.stage] = true;
    if (op.kind != OpKind::load || !updated[op.stage]) continue;
    trained[i] = true;
    if (const auto end = evicted.find(op.stage); end != evicted.end()) trained[end->second] = true;
  }
  return trained;
}

std::string listing(const Stream& stream, const InstructionLists& lists) {
  std::string text;
  const Program ops = joined(stream);
  for (std::size_t i = 0; i < ops.size(); ++i) {
    text += to_text(ops[i]) + ":";
    for (const Instruction& one : lists[i]) text += (&one == lists[i].data() ? " " : ", ") + words_of(one);
    text += "\n";
  }
  return text;
}

}  // namespace pp::plan
