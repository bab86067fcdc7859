#include "librun/report/deviation.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "libplan/draw/svg_labels.h"
#include "libplan/price/predict.h"
#include "libplan/simulate/instruction_times.h"
#include "libprofile/core/text.h"
#include "librun/report/build.h"
#include "librun/report/html.h"

namespace pp::run {

namespace {

using plan::OpKind;

constexpr double kInterrupted = 2;        // times the median
constexpr double kWorthASentence = 0.01;  // of the step
constexpr double kWorthANumber = 0.01;    // of the promise
constexpr double kVaries = 1.1;           // expected over promised step

bool computes(OpKind kind) { return plan::has_micro_batch(kind) || kind == OpKind::update; }

/// Measured over promised of a kind of operation; 1 where one of the two is not known.
double factor(const RunReport& report, OpKind kind, StageId stage) {
  for (const OpTime& row : report.op_times) {
    if (row.kind == kind && row.stage == stage && row.predicted.count() > 0) return row.median / row.predicted;
  }
  return 1;
}

void take_measured_times(std::vector<plan::StageCosts>& stages, const RunReport& report) {
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const auto of = [&](OpKind kind) { return factor(report, kind, StageId{static_cast<int>(s)}); };
    plan::StageCosts& stage = stages[s];
    stage.forward *= of(OpKind::forward);
    stage.backward *= of(OpKind::backward);
    stage.input_gradient *= of(OpKind::input_gradient);
    stage.weight_gradient *= of(OpKind::weight_gradient);
    stage.recompute *= of(OpKind::recompute);
    stage.update *= of(OpKind::update);
    if (!stage.first) continue;
    stage.first->forward *= of(OpKind::forward);
    stage.first->backward *= of(OpKind::backward);
    stage.first->weight_gradient *= of(OpKind::weight_gradient);
  }
}

Seconds period(const plan::SimulationInput& input) {
  return input.programs.synchronous ? plan::chained_period(input) : plan::steady_period(input);
}

double promised_step(const RunReport& report) {
  for (const Comparison& row : report.comparisons) {
    if (row.name == "step_s") return row.predicted;
  }
  return 0;
}

/// What the plan was predicted with; nothing: it carries no times, or too many operations.
std::optional<plan::SimulationInput> simulated(const plan::Plan& plan) {
  if (plan.stages.empty() || plan.predicted.stages.size() != plan.stages.size()) return std::nullopt;
  const bool streams = plan.workers.front().program.stream.has_value();
  plan::SimulationInput input = plan::simulation_input(plan, streams ? plan::steady_updates(plan) : 1);
  std::size_t ops = 0;
  for (const auto& program : input.programs.workers) ops += program.size();
  if (ops > Deviation::kMostOps) return std::nullopt;
  return input;
}

std::optional<Seconds> of_operations(const RunReport& report) {
  std::optional<plan::SimulationInput> input = simulated(report.plan);
  if (!input || promised_step(report) <= 0) return std::nullopt;
  const Seconds promised = period(*input);
  if (promised <= Seconds(0)) return std::nullopt;
  take_measured_times(input->stages, report);
  return Seconds(promised_step(report)) * (period(*input) / promised - 1);
}

/// Mini-batches that a step accumulates make it so many times longer, but for what ends it.
bool is_of_micro_batches(plan::InstructionKind kind) { return kind <= plan::InstructionKind::weight_gradient; }

Seconds busy_above_medians(const RunReport& report, std::span<const WorkerRecord* const> workers) {
  const WorkerRecord* busiest = nullptr;
  Seconds busy{};
  for (const WorkerRecord* worker : workers) {
    if (const Seconds mine = median(worker->busy); !busiest || mine > busy) {
      busiest = worker;
      busy = mine;
    }
  }
  if (!busiest || report.steps == 0) return Seconds(0);
  Seconds medians{};
  for (const auto& [key, times] : busiest->op_times)
    medians += times.median() * (static_cast<double>(times.count()) / static_cast<double>(report.steps));
  return std::max(busy - medians, Seconds(0));
}

void count_interrupted(Deviation& deviation, std::span<const WorkerRecord* const> workers) {
  for (const WorkerRecord* worker : workers) {
    for (const auto& [key, times] : worker->op_times) {
      deviation.operation_count += times.count();
      const double share = times.share_above(kInterrupted * times.median());
      deviation.interrupted += std::llround(share * static_cast<double>(times.count()));
    }
  }
}

void look_at_steps(Deviation& deviation, const RunReport& report, std::span<const StepRecord> steps) {
  const double samples = step_samples(steps, false);
  const std::vector<std::size_t> steady = steady_steps(steps);
  Seconds sum{};
  std::int64_t whole = 0;
  for (const std::size_t i : steady) {
    if (steps[i].samples < samples) continue;
    sum += steps[i].time;
    ++whole;
  }
  if (whole > 0) deviation.mean_excess = sum / static_cast<double>(whole) - report.step;
  std::vector<Seconds> partial;
  for (const StepRecord& step : steps)
    if (step.samples < samples) partial.push_back(step.time);
  deviation.partial_steps = std::ssize(partial);
  deviation.partial_step = median(std::move(partial));
  if (steady.size() == steps.size() || std::ssize(steps) != report.steps) return;
  for (const StepRecord& step : steps.first(kWarmUpSteps)) {
    if (step.samples < samples) continue;
    deviation.first_excess += step.time - report.step;
    ++deviation.first_steps;
  }
}

std::string signed_text(Seconds time) {
  return (time < Seconds(0) ? "-" : "+") + to_text(Seconds(std::abs(time.count())));
}

/// The kind of operation that adds most in the direction of `operations`: `backward of stage 1, 1.07 of the
/// promise`.
std::string largest_part(const RunReport& report, Seconds operations) {
  const OpTime* largest = nullptr;
  const auto part = [&](const OpTime& row) {
    const double all = static_cast<double>(row.count) * (row.median - row.predicted).count();
    return operations < Seconds(0) ? -all : all;
  };
  for (const OpTime& row : report.op_times) {
    if (row.predicted <= Seconds(0) || !computes(row.kind) || part(row) <= 0) continue;
    if (std::abs(row.median / row.predicted - 1) < kWorthANumber) continue;
    if (!largest || part(row) > part(*largest)) largest = &row;
  }
  if (!largest) return "";
  return " (most of it: " + std::string(plan::style_of(largest->kind).name) + " of stage " +
         std::to_string(number(largest->stage)) + ", " + number_text(largest->median / largest->predicted) +
         " times as long as promised)";
}

/// What of waiting and messages adds most in the direction of `rest` on the busiest worker.
std::string largest_wait(const RunReport& report, Seconds rest) {
  if (report.workers.empty()) return "";
  const WorkerId busiest = std::ranges::max_element(report.workers, {}, &WorkerReport::busy)->id;
  const auto part = [&](const InstructionReport& row) {
    return (rest < Seconds(0) ? -1 : 1) * (row.median - row.predicted);
  };
  const InstructionReport* largest = nullptr;
  for (const InstructionReport& row : report.instructions) {
    using enum plan::InstructionKind;
    const bool computes = row.kind >= forward && row.kind <= weight_gradient;
    if (row.worker != busiest || computes || row.kind == update || part(row) <= Seconds(0)) continue;
    if (!largest || part(row) > part(*largest)) largest = &row;
  }
  if (!largest) return "";
  return " (most of it: " + std::string(name_of(largest->kind)) + " of stage " +
         std::to_string(number(largest->stage)) + " on worker " + std::to_string(number(busiest)) + ", " +
         signed_text(largest->median - largest->predicted) + ")";
}

}  // namespace

std::vector<InstructionReport> instruction_report(const RunReport& report,
                                                  std::span<const WorkerRecord* const> workers) {
  std::map<std::tuple<WorkerId, StageId, plan::InstructionKind>, InstructionReport> rows;
  const auto row = [&](WorkerId worker, StageId stage, plan::InstructionKind kind) -> InstructionReport& {
    return rows.try_emplace({worker, stage, kind}, InstructionReport{worker, stage, kind}).first->second;
  };
  for (std::size_t w = 0; w < workers.size(); ++w) {
    for (const auto& [key, times] : workers[w]->instruction_times)
      row(WorkerId{static_cast<int>(w)}, key.second, key.first).median = times.median();
  }
  const std::optional<plan::SimulationInput> input = simulated(report.plan);
  if (input && report.plan.predicted.step > Seconds(0)) {
    const double mini_batches = promised_step(report) / report.plan.predicted.step.count();
    const int updates = input->programs.micro_batches / report.plan.training.micro_batches;
    for (const plan::InstructionTime& one : plan::instruction_times(*input, std::max(updates, 1)))
      row(one.worker, one.stage, one.kind).predicted =
          (is_of_micro_batches(one.kind) ? mini_batches : 1) * one.time;
  }
  std::vector<InstructionReport> all;
  for (const auto& [key, one] : rows) all.push_back(one);
  return all;
}

Deviation deviation_of(const RunReport& report, std::span<const StepRecord> steps,
                       std::span<const WorkerRecord* const> workers) {
  Deviation deviation;
  deviation.operations = of_operations(report);
  deviation.above_medians = busy_above_medians(report, workers);
  count_interrupted(deviation, workers);
  const bool streams = report.plan.workers.front().program.stream.has_value();
  if (!streams && !steps.empty()) look_at_steps(deviation, report, steps);
  return deviation;
}

std::vector<std::string> deviation_lines(const RunReport& report) {
  std::vector<std::string> lines;
  if (!report.deviation || report.steps == 0) return lines;
  const Deviation& found = *report.deviation;
  const Seconds step = report.step;
  const auto matters = [&](Seconds time, double steps = 1) {
    return std::abs(time.count()) >= kWorthASentence * steps * step.count();
  };
  const Seconds promised(promised_step(report));
  const std::optional<Seconds> expected = report.plan.predicted.expected_step;
  if (expected && *expected > kVaries * report.plan.predicted.step)
    lines.push_back("operations vary so much in the profile that the plan expects " + to_text(*expected) +
                    " a step on average, " + to_text(report.plan.predicted.step) +
                    " by their medians: profile again on a quieter machine");
  if (found.operations && matters(step - promised)) {
    const Seconds rest = step - promised - *found.operations - found.above_medians;
    lines.push_back(
        "the step takes " + to_text(Seconds(std::abs((step - promised).count()))) +
        (step < promised ? " less" : " longer") + " than predicted: operations " +
        signed_text(*found.operations) + largest_part(report, *found.operations) +
        (matters(found.above_medians) ? ", time beyond the medians " + signed_text(found.above_medians) : "") +
        ", messages and waiting " + signed_text(rest) + (matters(rest) ? largest_wait(report, rest) : ""));
  }
  const auto share = static_cast<double>(found.interrupted) / static_cast<double>(found.operation_count);
  if (found.interrupted > 0 && (share >= kWorthASentence || matters(found.mean_excess))) {
    const std::string mean = found.mean_excess == Seconds(0)
                                 ? ""
                                 : "; the mean step is " + signed_text(found.mean_excess) + " from the median";
    lines.push_back(std::to_string(found.interrupted) + " of " + counted(found.operation_count, "operation") +
                    " were interrupted (they took more than twice their median): other programs use these "
                    "devices" +
                    mean);
  }
  if (found.first_excess > Seconds(0) && matters(found.first_excess, static_cast<double>(found.first_steps)))
    lines.push_back("the first " + counted(found.first_steps, "step") + " took " + to_text(found.first_excess) +
                    " longer in all, with cold caches and memory to ask for; the step leaves them out");
  if (found.partial_steps > 0)
    lines.push_back(counted(found.partial_steps, "step") + " of " + std::to_string(report.steps) +
                    " had a partial mini-batch and took " + to_text(found.partial_step) + ", the others " +
                    to_text(step));
  return lines;
}

}  // namespace pp::run
