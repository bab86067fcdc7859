// Lowering: an operation's own instructions, then a pass for each feature.
#include "librun/wiring/instructions.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "libprofile/core/index.h"

namespace pp::run {

namespace {

using enum InstructionKind;
using List = std::vector<Instruction>;

constexpr std::array<std::string_view, 23> kNames{
    "receive", "feed",       "send",   "forward", "recompute", "backward", "weight gradient", "reduce",
    "tie",     "judge",      "update", "spread",  "fetch",     "push",     "ready",           "load",
    "evict",   "write back", "stash",  "unstash", "evaluate",  "score",    "hand out"};

List::iterator find(List& list, InstructionKind kind) {
  return std::ranges::find(list, kind, &Instruction::kind);
}

/// In front of, or behind, the first instruction of a kind in each list that has one.
void insert_before(InstructionLists& lists, InstructionKind where, InstructionKind what) {
  for (List& list : lists)
    if (const auto at = find(list, where); at != list.end()) list.insert(at, {what, at->op});
}
void insert_behind(InstructionLists& lists, InstructionKind where, InstructionKind what) {
  for (List& list : lists)
    if (const auto at = find(list, where); at != list.end()) list.insert(at + 1, {what, at->op});
}

bool reads_data(const StageWiring& stage) {
  return std::ranges::any_of(stage.inputs, [](const StageInput& input) { return input.producer < 0; });
}

/// The instructions of a forward that no backward follows.
void add_evaluation(List& list, const plan::Op& op, const LoweringInput& from) {
  list.push_back({evaluate, op});
  const std::size_t last = from.plan.stages.size() - 1;
  if (index(op.stage) == last && from.loss) list.push_back({score, op});
  if (from.inference) list.push_back({hand_out, op});
}

List instructions_of(const plan::Op& op, const LoweringInput& from) {
  List list;
  const auto add = [&](InstructionKind kind) { list.push_back({kind, op}); };
  const auto exchange = [&](InstructionKind kind, Direction direction, const std::vector<Port>& ports) {
    if (!ports.empty()) list.push_back({kind, op, direction, ports});
  };
  const auto add_feed = [&] {
    if (reads_data(from.wiring[index(op.stage)])) add(feed);
  };
  const auto ports = [&]() -> const StagePorts& { return from.channels.ports(op.stage); };
  switch (op.kind) {
    case plan::OpKind::forward:
      exchange(receive, from.forwards, ports().inputs);
      add_feed();
      if (from.forwards == Direction::evaluation) {
        add_evaluation(list, op, from);
      } else {
        add(forward);
      }
      exchange(send, from.forwards, ports().outputs);
      break;
    case plan::OpKind::recompute: add_feed(), add(recompute); break;
    case plan::OpKind::backward:
    case plan::OpKind::input_gradient:
      exchange(receive, Direction::gradient, ports().output_gradients);
      add(backward);
      exchange(send, Direction::gradient, ports().input_gradients);
      break;
    case plan::OpKind::weight_gradient: add(weight_gradient); break;
    case plan::OpKind::all_reduce: add(reduce); break;
    case plan::OpKind::tied_all_reduce: add(tie); break;
    case plan::OpKind::update: add(update); break;
    case plan::OpKind::load: add(load); break;
    case plan::OpKind::evict: add(evict); break;
  }
  return list;
}

/// Before the first update of a step, which no other worker's begins before either.
void add_judge(InstructionLists& lists) {
  for (List& list : lists) {
    const auto at = find(list, update);
    if (at == list.end()) continue;
    list.insert(at, {judge, at->op});
    return;
  }
}

void add_shards(InstructionLists& lists, const plan::Plan& plan) {
  for (List& list : lists) {
    const auto at = find(list, update);
    if (at != list.end() && shares_state(plan, at->op.stage)) list.insert(at + 1, {spread, at->op});
  }
}

void add_server(InstructionLists& lists) {
  insert_before(lists, forward, fetch);
  for (List& list : lists)
    if (const auto at = find(list, update); at != list.end()) at->kind = push;
}

/// Whether the update of the stage that the load is for stands in front of the next one.
bool precedes_update(const InstructionLists& lists, std::size_t place) {
  const plan::Op& op = lists[place].front().op;
  for (std::size_t i = place + 1; i < lists.size() && lists[i].front().op != op; ++i)
    if (lists[i].front().op == plan::Op{plan::OpKind::update, op.stage}) return true;
  return false;
}

/// Weights come and go, and so do the inputs of forwards that run again; an updated stage goes back at once,
/// unless it leaves next.
void add_swaps(InstructionLists& lists) {
  for (std::size_t i = 0; i < lists.size(); ++i) {
    Instruction& first = lists[i].front();
    const plan::Op op = first.op, next = lists[(i + 1) % lists.size()].front().op;
    if (op.kind == plan::OpKind::load)
      first.trains = precedes_update(lists, i), first.waits = next.stage == op.stage;
    const bool leaves = next == plan::Op{plan::OpKind::evict, op.stage};
    if (op.kind == plan::OpKind::update && !leaves) lists[i].push_back({write_back, op});
  }
  insert_behind(lists, forward, stash);
  insert_before(lists, recompute, unstash);
  for (List& list : lists)
    if (list.front().op.kind != plan::OpKind::tied_all_reduce)
      list.insert(list.begin(), {ready, list.front().op});
}

std::string words_of(const Instruction& one) {
  std::string text(name_of(one.kind));
  const bool sends = one.kind == send;
  for (const Port& port : one.ports) {
    if (&port != one.ports.data()) text += " and";
    text += (one.direction == Direction::gradient ? " gradient " : " activation ") + std::to_string(port.edge) +
            (sends ? " to" : " from") + " stage " + std::to_string(number(port.peer));
  }
  return text;
}

}  // namespace

std::string_view name_of(InstructionKind kind) { return kNames[static_cast<std::size_t>(kind)]; }

bool shares_state(const plan::Plan& plan, StageId stage) {
  return plan.training.shard == plan::Shard::optimizer && plan.stages[index(stage)].workers.size() > 1;
}

InstructionLists lower(const plan::Stream& stream, const LoweringInput& from) {
  InstructionLists lists;
  for (const plan::Program* part : {&stream.prologue, &stream.body})
    for (const plan::Op& op : *part) lists.push_back(instructions_of(op, from));
  if (from.judged) add_judge(lists);
  add_shards(lists, from.plan);
  if (from.served) add_server(lists);
  if (from.swapped) add_swaps(lists);
  return lists;
}

std::string listing(const plan::Stream& stream, const InstructionLists& lists) {
  std::string text;
  std::size_t place = 0;
  for (const plan::Program* part : {&stream.prologue, &stream.body}) {
    for (const plan::Op& op : *part) {
      text += plan::to_text(op) + ":";
      for (const Instruction& one : lists[place])
        text += (&one == lists[place].data() ? " " : ", ") + words_of(one);
      text += "\n", ++place;
    }
  }
  return text;
}

}  // namespace pp::run
