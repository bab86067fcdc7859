#include "libplan/schedule/rule_sets.h"

#include "libprofile/core/error.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

[[noreturn]] void refuse(const ProgramIndex& index, int id, const std::string& text) {
  throw Error(ErrorKind::data, locate(index, id) + ": " + text);
}

[[noreturn]] void missing(OpKind kind, int stage, int micro_batch, const std::string& remedy) {
  throw Error(ErrorKind::data, "stage " + std::to_string(stage) + ": " +
                                   to_text(Op{kind, StageId{stage}, micro_batch}) + " is missing; " + remedy);
}

bool is_swap(OpKind kind) { return kind == OpKind::load || kind == OpKind::evict; }

/// Empty: the rule set knows the kind.
std::string_view refusal(RuleSet rules, OpKind kind) {
  switch (rules) {
    case RuleSet::standard:
    case RuleSet::served: return is_swap(kind) ? "weights stay on their worker here; leave it out" : "";
    case RuleSet::forward_only:
      return kind == OpKind::forward ? "" : "an inference program has forwards only; leave it out";
    case RuleSet::clocked:
      return kind == OpKind::forward || kind == OpKind::backward || kind == OpKind::update
                 ? ""
                 : "a clocked program has F, B and U only; leave it out";
    case RuleSet::swapped: return "";
  }
  return "";
}

}  // namespace

void check_kinds(const ProgramSet& set, const ProgramIndex& index) {
  for (int id = 0; id < static_cast<int>(index.ops.size()); ++id) {
    const std::string_view text = refusal(set.rules, index.ops[at(id)].kind);
    if (!text.empty()) refuse(index, id, std::string(text));
  }
}

void check_clock_steps(const ProgramSet& set, const ProgramIndex& index) {
  const int last = index.stages - 1;
  const int frames = set.micro_batches - last;
  if (frames < 1) {
    throw Error(ErrorKind::data, "micro_batches = " + std::to_string(set.micro_batches) +
                                     " clock steps; a frame needs " + std::to_string(index.stages) +
                                     " to pass " + std::to_string(index.stages) + " stages");
  }
  for (int s = 0; s <= last; ++s) {
    if (index.workers_of_stage[at(s)] > 1) {
      throw Error(ErrorKind::data, "stage " + std::to_string(s) + " has " +
                                       std::to_string(index.workers_of_stage[at(s)]) +
                                       " workers; a clocked stage has one");
    }
    const auto check = [&](Slot slot, OpKind kind, int begin) {
      for (int t = 0; t < set.micro_batches; ++t) {
        const int found = index.first(slot, s, t);
        const bool wanted = t >= begin && t < frames + s;
        if (wanted && found == kNone)
          missing(kind, s, t, "every stage runs at every step while frames pass it");
        if (!wanted && found != kNone)
          refuse(index, found, "no frame or gradient passes the stage at this step");
      }
    };
    check(Slot::forward, OpKind::forward, s);
    check(Slot::backward, OpKind::backward, std::max(s, 2 * last - s));
  }
}

void check_clock_order(const ProgramSet& set, const ProgramIndex& index) {
  if (set.rules != RuleSet::clocked) return;
  for (int worker = 0; worker < index.workers(); ++worker) {
    bool updated = true;
    for (int id = index.worker_begin[at(worker)]; id < index.worker_begin[at(worker) + 1]; ++id) {
      const OpKind kind = index.ops[at(id)].kind;
      if (kind == OpKind::forward && !updated) {
        refuse(index, id,
               to_text(Op{OpKind::update, index.ops[at(id)].stage, 0}) + " of the step before must come first");
      }
      if (kind != OpKind::forward) updated = kind == OpKind::update;
    }
  }
}

void check_swapped_backwards(const ProgramIndex& index) {
  for (int s = 0; s < index.stages; ++s) {
    for (int m = 0; m < index.micro_batches; ++m) {
      const int backward = index.first(Slot::backward, s, m);
      if (backward == kNone) missing(OpKind::backward, s, m, "list it, or I and W, on one worker of the stage");
      const bool split = index.ops[at(backward)].kind == OpKind::input_gradient;
      const int weight = index.first(Slot::weight_gradient, s, m);
      if (split && weight == kNone)
        missing(OpKind::weight_gradient, s, m, "I leaves the weight gradient to it");
      if (!split && weight != kNone)
        refuse(index, weight, "B computes this gradient already; list B alone, or I and W");
      if (index.local(Slot::forward, backward) == kNone && index.local(Slot::recompute, backward) == kNone) {
        refuse(index, backward,
               "its forward ran on another worker; recompute it here with " +
                   to_text(Op{OpKind::recompute, StageId{s}, m}));
      }
    }
  }
}

void check_residency(const ProgramIndex& index) {
  if (index.rules != RuleSet::swapped) return;
  std::vector<bool> loaded(at(index.stages)), has_gradient(at(index.stages));
  for (int worker = 0; worker < index.workers(); ++worker) {
    loaded.assign(at(index.stages), false);
    has_gradient.assign(at(index.stages), false);
    for (int id = index.worker_begin[at(worker)]; id < index.worker_begin[at(worker) + 1]; ++id) {
      const Op& op = index.ops[at(id)];
      const auto here = loaded[pp::index(op.stage)];
      const std::string stage = std::to_string(number(op.stage));
      if (op.kind == OpKind::load && here)
        refuse(index, id, "the weights of stage " + stage + " are loaded already");
      if (op.kind != OpKind::load && !here)
        refuse(index, id, "the weights of stage " + stage + " are not loaded; L" + stage + " must come first");
      if (op.kind == OpKind::evict && has_gradient[pp::index(op.stage)])
        refuse(index, id, "the gradients of stage " + stage + " would be lost; U" + stage + " must come first");
      if (completes_backward(op.kind) || op.kind == OpKind::update)
        has_gradient[pp::index(op.stage)] = op.kind != OpKind::update;
      loaded[pp::index(op.stage)] = op.kind != OpKind::evict;
    }
    for (int s = 0; s < index.stages; ++s) {
      if (!loaded[at(s)]) continue;
      throw Error(ErrorKind::data, "worker " + std::to_string(worker) + ": the weights of stage " +
                                       std::to_string(s) + " stay loaded; end with E" + std::to_string(s));
    }
  }
}

}  // namespace pp::plan
