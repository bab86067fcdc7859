#include "libplan/plan_recompute.h"

#include <algorithm>

namespace pp::plan {
namespace {

std::string quoted_name(std::string_view name) { return std::string("\"").append(name).append("\""); }

[[noreturn]] void fail_at(const std::string& where, const std::string& message) {
  throw Error(ErrorKind::data, where + ": " + message);
}

void check_layers(const Stage& stage, const std::string& where) {
  for (auto layer = stage.recompute.begin(); layer != stage.recompute.end(); ++layer) {
    if (std::ranges::count(stage.layers, *layer) == 0)
      fail_at(where, "layer " + quoted_name(*layer) + " is not in the stage");
    if (std::count(stage.recompute.begin(), layer, *layer) > 0)
      fail_at(where, "layer " + quoted_name(*layer) + " stands twice");
  }
}

}  // namespace

std::vector<std::optional<Op>> whole_recomputes(const Plan& plan) {
  std::vector<std::optional<Op>> first(plan.stages.size());
  const auto note = [&](const Program& program) {
    for (const Op& op : program) {
      if (op.kind == OpKind::recompute && !first[index(op.stage)]) first[index(op.stage)] = op;
    }
  };
  for (const Worker& worker : plan.workers) {
    note(worker.program.program);
    if (!worker.program.stream) continue;
    note(worker.program.stream->prologue);
    note(worker.program.stream->body);
  }
  return first;
}

std::string recompute_text(const Plan& plan) {
  const std::vector<std::optional<Op>> whole = whole_recomputes(plan);
  std::string text;
  bool nothing = true;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const std::size_t layers = plan.stages[s].recompute.size();
    text.append(s == 0 ? "" : "|").append(whole[s] ? "all" : layers == 0 ? "-" : std::to_string(layers));
    nothing = nothing && !whole[s] && layers == 0;
  }
  return nothing ? "" : text;
}

void check_recompute(const Plan& plan) {
  const RecomputePolicy policy = plan.schedule.recompute;
  const std::vector<std::optional<Op>> whole = whole_recomputes(plan);
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const std::string where = "/stages/" + std::to_string(s) + "/recompute";
    if (whole[s] && policy == RecomputePolicy::never) {
      fail_at("/schedule/recompute",
              "is \"never\", but the programs have " + to_text(*whole[s]) + "; use \"per_stage\"");
    }
    if (plan.stages[s].recompute.empty()) continue;
    if (policy != RecomputePolicy::per_stage)
      fail_at(where, "must be empty with recompute " + quoted_name(name_of(policy)) + "; use \"per_stage\"");
    if (whole[s])
      fail_at(where, "must be empty: the programs run the whole stage again, " + to_text(*whole[s]));
    check_layers(plan.stages[s], where);
  }
}

}  // namespace pp::plan
