#include "tests/lab/fuzz/mutate_programs.h"

#include <algorithm>
#include <array>
#include <string>

#include "libprofile/core/error.h"

namespace pp::fuzz {
namespace {

using plan::Op;
using plan::OpKind;
using plan::Program;

std::ptrdiff_t place(Random& random, const Program& program) {
  return static_cast<std::ptrdiff_t>(random.below(program.size() + 1));
}

void move_near(Random& random, Program& program) {
  if (program.size() < 2) return;
  const std::size_t at = random.below(program.size() - 1);
  std::swap(program[at], program[at + 1]);
}

void move_far(Random& random, Program& program) {
  const auto at = program.begin() + static_cast<std::ptrdiff_t>(random.below(program.size()));
  const Op op = *at;
  program.erase(at);
  program.insert(program.begin() + place(random, program), op);
}

void change(Random& random, Op& op) {
  static constexpr std::array kKinds{OpKind::forward,         OpKind::backward,  OpKind::input_gradient,
                                     OpKind::weight_gradient, OpKind::recompute, OpKind::all_reduce,
                                     OpKind::update,          OpKind::load};
  switch (random.below(3)) {
    case 0: op.kind = random.pick(kKinds); break;
    case 1: op.stage = StageId{random.integer(0, 3)}; break;
    default: op.micro_batch = random.one_in(20) ? 100'000'000 : random.integer(0, 5);
  }
  if (!has_micro_batch(op.kind)) op.micro_batch = 0;
}

/// B becomes I and, a little later, W; or I takes its W back and is B.
void split_or_join(Random& random, Program& program) {
  const std::size_t at = random.below(program.size());
  const Op op = program[at];
  if (op.kind == OpKind::backward) {
    program[at].kind = OpKind::input_gradient;
    const std::size_t later = std::min(program.size() - at - 1, random.below(3));
    program.insert(program.begin() + static_cast<std::ptrdiff_t>(at + 1 + later),
                   {OpKind::weight_gradient, op.stage, op.micro_batch});
  } else if (op.kind == OpKind::input_gradient) {
    program[at].kind = OpKind::backward;
    std::erase(program, Op{OpKind::weight_gradient, op.stage, op.micro_batch});
  }
}

/// A forward that runs again, early or right before its backward.
void recompute(Random& random, Program& program) {
  const Op op = random.pick(program);
  const auto backward = std::ranges::find_if(program, [&](const Op& other) {
    return (other.kind == OpKind::backward || other.kind == OpKind::input_gradient) &&
           other.stage == op.stage && other.micro_batch == op.micro_batch;
  });
  if (op.kind == OpKind::forward && backward != program.end())
    program.insert(backward, {OpKind::recompute, op.stage, op.micro_batch});
}

void exchange_micro_batches(Random& random, std::vector<Program>& workers) {
  const int a = random.integer(0, 4), b = random.integer(0, 4);
  for (Program& program : workers) {
    for (Op& op : program) {
      if (!has_micro_batch(op.kind)) continue;
      if (op.micro_batch == a) {
        op.micro_batch = b;
      } else if (op.micro_batch == b) {
        op.micro_batch = a;
      }
    }
  }
}

/// All operations of one micro-batch go to another worker, as when replicas divide their work anew.
void hand_over(Random& random, std::vector<Program>& workers) {
  Program& from = random.pick(workers);
  Program& to = random.pick(workers);
  if (from.empty() || &from == &to) return;
  const Op chosen = random.pick(from);
  const bool copy = random.one_in(3);
  for (std::size_t i = 0; i < from.size(); ++i) {
    const Op op = from[i];
    if (!has_micro_batch(op.kind) || op.stage != chosen.stage || op.micro_batch != chosen.micro_batch) continue;
    to.insert(to.begin() + static_cast<std::ptrdiff_t>(std::min(i, to.size())), op);
    if (!copy) from.erase(from.begin() + static_cast<std::ptrdiff_t>(i--));
  }
}

}  // namespace

void mutate_programs(Random& random, std::vector<Program>& workers) {
  std::vector<Program*> filled;
  for (Program& program : workers) {
    if (!program.empty()) filled.push_back(&program);
  }
  if (filled.empty()) return;
  Program& program = *random.pick(filled);
  switch (random.below(14)) {
    case 0: program.erase(program.begin() + static_cast<std::ptrdiff_t>(random.below(program.size()))); return;
    case 1: {
      const Op op = random.pick(program);
      program.insert(program.begin() + place(random, program), op);
      return;
    }
    case 2: return move_far(random, program);
    case 3: return change(random, random.pick(program));
    case 4: {
      const Op op = random.pick(program);
      Program& other = random.pick(workers);
      other.insert(other.begin() + place(random, other), op);
      return;
    }
    case 5: return exchange_micro_batches(random, workers);
    case 6:
    case 7: return hand_over(random, workers);
    case 8: std::swap(program, random.pick(workers)); return;
    case 9:
    case 10: return split_or_join(random, program);
    case 11: return recompute(random, program);
    default: return move_near(random, program);
  }
}

void mutate_plan_programs(Random& random, Json& plan) {
  if (!plan.is_object() || !plan.contains("workers") || !plan["workers"].is_array()) return;
  const char* part = random.one_in(3) ? "prologue" : "body";
  std::vector<Json*> texts;
  std::vector<Program> programs;
  for (Json& worker : plan["workers"]) {
    Json* text = nullptr;
    if (worker.contains("program")) text = &worker["program"];
    if (worker.contains("stream") && worker["stream"].contains(part)) text = &worker["stream"][part];
    if (text == nullptr || !text->is_string()) continue;
    try {
      programs.push_back(plan::parse_program(text->get<std::string>()));
      texts.push_back(text);
    } catch (const Error&) {
    }
  }
  if (programs.empty()) return;
  mutate_programs(random, programs);
  for (std::size_t i = 0; i < texts.size(); ++i) *texts[i] = plan::to_text(programs[i]);
}

}  // namespace pp::fuzz
