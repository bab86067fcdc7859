#include "libplan/report/sweep.h"

#include <algorithm>
#include <limits>

#include "libplan/answer/make_plan.h"
#include "libplan/search/parallel.h"

namespace pp::plan {
namespace {

/// One combination.
struct Cell {
  const Cluster* cluster;
  std::string schedule;
  int micro_batches;
};

std::vector<Cell> cells_of(const SweepSpec& spec) {
  std::vector<Cell> cells;
  for (const Cluster& cluster : spec.clusters) {
    for (const std::string& schedule : spec.schedules) {
      for (const int count : spec.micro_batches) cells.push_back({&cluster, schedule, count});
    }
  }
  return cells;
}

SweepFigures figures_of(const Plan& plan, const TrainingBudget& budget) {
  Bytes peak;
  for (const WorkerPrediction& worker : plan.predicted.workers) peak = std::max(peak, worker.memory.peak);
  return {.stages = stages_text(plan),
          .replicas = replicas_text(plan),
          .step = plan.predicted.step,
          .samples_per_s = plan.predicted.samples_per_s,
          .bubble_fraction = plan.predicted.bubble_fraction,
          .peak = peak,
          .gap = plan.certificate.gap,
          .throughput = throughput_of(plan, budget),
          .micro_batches = plan.training.micro_batches};
}

std::variant<SweepFigures, SweepFailure> best_of(const Profile& profile, const Cell& cell,
                                                 const SweepSpec& spec) {
  PlanRequest request = spec.request;
  request.schedule = cell.schedule;
  request.micro_batches.reset();
  request.micro_batch_size.reset();
  if (cell.micro_batches > 0) request.micro_batches = cell.micro_batches;
  try {
    const auto result =
        make_plan(profile, *cell.cluster, narrowed(profile, *cell.cluster, request, spec.strategy));
    if (const auto* none = std::get_if<Infeasible>(&result))
      return SweepFailure{SweepFailure::Kind::infeasible, none->reason};
    return figures_of(std::get<Plan>(result), spec.budget);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::usage) throw;
    return SweepFailure{SweepFailure::Kind::refused, e.what()};
  }
}

void check(const SweepSpec& spec) {
  for (const std::string& name : spec.schedules) {
    if (name != "auto") require_schedule(name);
  }
  if (spec.request.mini_batch >= 1) return;
  throw Error(ErrorKind::usage, "mini_batch = " + std::to_string(spec.request.mini_batch) +
                                    ": the samples per optimizer update are not given; add --mini-batch N");
}

}  // namespace

std::vector<SweepRow> sweep(const Profile& profile, const SweepSpec& spec) {
  check(spec);
  check_budget(spec.budget, profile.model);
  const std::vector<Cell> cells = cells_of(spec);
  std::vector<SweepRow> rows(cells.size());
  for_each_index(cells.size(), spec.threads, [&](std::size_t i) {
    const Cell& cell = cells[i];
    rows[i] = {static_cast<int>(cell.cluster->devices.size()) * profile.tensor_degree,
               cell.schedule,
               cell.micro_batches,
               best_of(profile, cell, spec),
               profile.tensor_degree,
               profile.device.kind == DeviceKind::cpu ? profile.device.cores_per_device : 0,
               profile.mode == ProfileMode::estimated};
    if (const SweepFigures* promised = rows[i].figures()) rows[i].micro_batches = promised->micro_batches;
  });
  return rows;
}

std::vector<SweepRow> best_rows(std::span<const std::vector<SweepRow>> sweeps) {
  std::vector<SweepRow> best = sweeps.front();
  const auto step = [](const SweepRow& row) {
    return row.figures() ? row.figures()->step : Seconds(std::numeric_limits<double>::infinity());
  };
  for (const std::vector<SweepRow>& rows : sweeps.subspan(1)) {
    for (std::size_t i = 0; i < rows.size(); ++i)
      if (step(rows[i]) < step(best[i])) best[i] = rows[i];
  }
  return best;
}

std::vector<bool> pareto_front(std::span<const SweepRow> rows) {
  const auto time = [&](std::size_t i) { return 1 / rows[i].figures()->samples_per_s; };
  const auto money = [&](std::size_t i) { return rows[i].devices * time(i); };
  const auto beats = [&](std::size_t a, std::size_t b) {
    if (time(a) > time(b) || money(a) > money(b)) return false;
    return time(a) < time(b) || money(a) < money(b) || a < b;
  };
  std::vector<bool> front(rows.size());
  for (std::size_t b = 0; b < rows.size(); ++b) {
    front[b] = rows[b].figures() != nullptr;
    for (std::size_t a = 0; a < rows.size() && front[b]; ++a)
      front[b] = a == b || rows[a].figures() == nullptr || !beats(a, b);
  }
  return front;
}

}  // namespace pp::plan
