#include "tests/librun/operation_counts.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "libprofile/model/bound_segment.h"
#include "librun/wiring/wiring.h"
#include "tests/support/allocation_count.h"
#include "tests/support/lock_count.h"

namespace pp::test {

using namespace pp;

namespace {

class Silence : public run::Observer {
 public:
  void step(const run::Progress&) override {}
  void epoch(const run::EpochReport&) override {}
  void warning(std::string_view) override {}
};

/// What making tensors takes in the executable's own code, per stage.
struct TensorParts {
  std::int64_t forward = 0, backward = 0;
};

std::vector<TensorParts> tensor_parts(const plan::Plan& plan) {
  constexpr std::int64_t kHandles = 2;  // storage, and what it keeps alive
  const ResolvedModel model = resolve(plan.model);
  const std::vector<model::Segment> segments = run::make_segments(plan, model);
  const std::vector<run::StageWiring> wiring = run::wire(segments);
  const auto worker = [&](std::size_t stage) { return plan.stages[stage].workers.front(); };
  std::vector<TensorParts> parts(segments.size());
  for (std::size_t s = 0; s < segments.size(); ++s) {
    const model::detail::BoundSegment bound = model::detail::bind_segment(
        model, model::detail::plan_segment(model, segments[s].layers(), segments[s].has_loss()),
        segments[s].format());
    for (std::size_t u = 0; u < bound.layers.size(); ++u) {
      if (!bound.layers[u].backward)
        parts[s].forward += std::ranges::count(bound.plan.order[u].source_gradient, true);
    }
    for (const run::StageInput& input : wiring[s].inputs) {
      if (input.producer >= 0 && worker(static_cast<std::size_t>(input.producer)) != worker(s))
        parts[s].forward += kHandles;
    }
    for (const run::StageOutput& output : wiring[s].outputs) {
      for (const run::StageOutput::Consumer& consumer : output.consumers) {
        if (consumer.gradient && worker(index(consumer.stage)) != worker(s)) parts[s].backward += kHandles;
      }
    }
  }
  return parts;
}

std::int64_t of_tensors(const std::vector<TensorParts>& parts, const plan::Op& op) {
  switch (op.kind) {
    case plan::OpKind::forward: return parts[index(op.stage)].forward;
    case plan::OpKind::backward:
    case plan::OpKind::input_gradient: return parts[index(op.stage)].backward;
    default: return 0;
  }
}

struct Mark {
  plan::Op op;
  std::int64_t allocations;
  std::int64_t locks;
};

thread_local std::optional<Mark> t_last;  // the operation that runs, where it is counted

}  // namespace

OperationCounts RunCounts::all() const {
  OperationCounts sum;
  for (const auto& [kind, counts] : kinds) {
    sum.operations += counts.operations;
    sum.allocations += counts.allocations;
    sum.locks += counts.locks;
  }
  return sum;
}

RunCounts count_operations(const plan::Plan& plan, run::RunOptions options, std::int64_t from) {
  RunCounts counts;
  std::mutex mutex;
  const std::vector<TensorParts> parts = tensor_parts(plan);
  options.evaluate = false;
  options.before_op = [&](std::int64_t step, WorkerId worker, const plan::Op& op) {
    const Mark now{op, pp::test::allocations().own, pp::test::locks()};
    pp::test::count_locks_as(-1);
    if (t_last) {
      const std::lock_guard held(mutex);
      OperationCounts& sum = counts.kinds[t_last->op.kind];
      ++sum.operations;
      sum.allocations += now.allocations - t_last->allocations - of_tensors(parts, t_last->op);
      sum.locks += now.locks - t_last->locks;
    }
    t_last.reset();
    if (step < from || step + 1 >= *options.steps) return;
    t_last = Mark{op, pp::test::allocations().own, pp::test::locks()};
    pp::test::count_locks_as(number(worker));
  };
  pp::test::forget_locks();
  Silence silence;
  run::run(plan, options, silence);
  counts.locks_of_many = pp::test::locks_of_many();
  return counts;
}

}  // namespace pp::test
