#include "librun/report/build.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "libplan/draw/chrome_trace.h"
#include "librun/swap/residency.h"

namespace pp::run {

namespace {

// Mean seconds per mini-batch in the middle third of one range.
Seconds streamed_period(std::span<const StepRecord> range, Seconds begin) {
  const std::size_t n = range.size();
  std::vector<Seconds> latest;  // E(i + 1)
  for (const StepRecord& step : range)
    latest.push_back(latest.empty() ? step.end : std::max(latest.back(), step.end));
  if (n < 6) return (latest.back() - begin) / static_cast<double>(n);
  const std::size_t third = n / 3;
  return (latest[2 * third - 1] - latest[third - 1]) / static_cast<double>(third);
}

// Sums of tied weights have a number of their own in place of a stage's.
void add_replica(OpTime& row, const plan::Plan& plan, WorkerId worker, Seconds median) {
  if (row.kind == plan::OpKind::tied_all_reduce || index(row.stage) >= plan.stages.size()) return;
  const std::vector<WorkerId>& replicas = plan.stages[index(row.stage)].workers;
  if (replicas.size() < 2) return;
  row.replicas.resize(replicas.size());
  const auto place = std::ranges::find(replicas, worker) - replicas.begin();
  if (place < std::ssize(replicas)) row.replicas[static_cast<std::size_t>(place)] = median;
}

Seconds streamed_step_time(std::span<const StepRecord> steps) {
  std::vector<Seconds> periods;
  Seconds start{};
  for (std::size_t first = 0; first < steps.size();) {
    std::size_t last = first;
    while (last < steps.size() && steps[last].range == steps[first].range) ++last;
    const auto range = steps.subspan(first, last - first);
    periods.push_back(streamed_period(range, start));
    for (const StepRecord& step : range) start = std::max(start, step.end);
    first = last;
  }
  return median(std::move(periods));
}

void compare(RunReport& report, std::string name, double predicted, double measured) {
  const double ratio = predicted == 0 ? 0 : measured / predicted;
  report.comparisons.push_back({std::move(name), predicted, measured, std::isfinite(ratio) ? ratio : 0});
}

SwapsReport swaps_report(const SwapCount& swaps) { return {swaps.count, swaps.bytes, swaps.time}; }

WorkerReport worker_report(WorkerId id, const WorkerRecord& record, Seconds step, std::int64_t steps) {
  WorkerReport report;
  report.id = id;
  report.busy = median(record.busy);
  report.bubble_fraction = fraction_idle(report.busy, 1, step);
  report.peak = record.peak;
  report.weights = record.weights;
  report.gradients = record.gradients;
  report.optimizer = record.optimizer;
  report.versions = record.versions;
  report.saved = record.saved;
  report.peak_in_flight = record.peak_in_flight;
  report.peak_versions = record.peak_versions;
  if (record.graphs.recorded > 0) report.graphs = record.graphs;
  report.sent_per_step = Bytes(record.sent.value / std::max<std::int64_t>(steps, 1));
  return report;
}

// Per step, beside what the programs list.
void compare_swaps(RunReport& report) {
  const std::vector<PlannedSwaps> planned = planned_swaps(report.plan);
  const double steps = static_cast<double>(std::max<std::int64_t>(report.steps, 1));
  for (std::size_t w = 0; w < report.workers.size(); ++w) {
    const std::string prefix = "worker_" + std::to_string(w) + "_swap_";
    const auto way = [&](const std::string& name, int count, Bytes bytes, const SwapsReport& measured) {
      compare(report, prefix + name, count, static_cast<double>(measured.count) / steps);
      compare(report, prefix + name + "_bytes", static_cast<double>(bytes.value),
              static_cast<double>(measured.bytes.value) / steps);
    };
    way("in", planned[w].loads, planned[w].in, *report.workers[w].swaps_in);
    way("out", planned[w].writes, planned[w].out, *report.workers[w].swaps_out);
  }
}

// A step does so many times what the plan predicts of a mini-batch, but for its all-reduce and its update.
void add_comparisons(RunReport& report, const plan::Prediction& predicted, double mini_batches) {
  compare(report, "step_s", mini_batches * predicted.step.count(), report.step.count());
  compare(report, "samples_per_s", predicted.samples_per_s, report.samples_per_s);
  compare(report, "bubble_fraction", predicted.bubble_fraction, report.bubble_fraction);
  for (std::size_t w = 0; w < report.workers.size() && w < predicted.workers.size(); ++w) {
    const std::string prefix = "worker_" + std::to_string(w) + "_";
    const WorkerReport& measured = report.workers[w];
    compare(report, prefix + "busy_s", mini_batches * predicted.workers[w].busy.count(), measured.busy.count());
    compare(report, prefix + "peak_bytes", static_cast<double>(predicted.workers[w].memory.peak.value),
            static_cast<double>(measured.peak.value));
  }
}

}  // namespace

std::optional<BytesPerSecond> SwapsReport::bandwidth() const {
  if (time <= Seconds(0)) return std::nullopt;
  return BytesPerSecond(static_cast<double>(bytes.value) / time.count());
}

double fraction_idle(Seconds busy, double workers, Seconds time) {
  if (time.count() <= 0) return 0;
  return std::clamp(1 - busy.count() / (workers * time.count()), 0.0, 1.0);
}

std::vector<std::size_t> steady_steps(std::span<const StepRecord> steps) {
  std::vector<std::size_t> found, all;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    all.push_back(i);
    if (i >= kWarmUpSteps && steps[i].range == steps[i - 1].range) found.push_back(i);
  }
  return found.empty() ? all : found;
}

Seconds step_time(std::span<const StepRecord> steps, bool streams) {
  if (steps.empty()) return Seconds(0);
  if (streams) return streamed_step_time(steps);
  std::vector<Seconds> times;
  for (const std::size_t i : steady_steps(steps))
    times.push_back(steps[i].end - (i == 0 ? Seconds(0) : steps[i - 1].end));
  return median(std::move(times));
}

double step_samples(std::span<const StepRecord> steps, bool streams) {
  std::vector<int> samples;
  if (streams) {
    for (const StepRecord& step : steps) samples.push_back(step.samples);
  } else {
    for (const std::size_t i : steady_steps(steps)) samples.push_back(steps[i].samples);
  }
  if (samples.empty()) return 0;
  const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
  std::ranges::nth_element(samples, middle);
  return *middle;
}

namespace {

/// Of the steps that are written down.
std::vector<int> samples_of(const LastSteps& last, std::span<const StepRecord> steps) {
  std::vector<int> samples;
  const std::int64_t begin = last.first_step - 1;  // -1: nothing is known
  if (begin < 0 || begin + last.steps > std::ssize(steps)) return samples;
  for (const StepRecord& step :
       steps.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(last.steps)))
    samples.push_back(step.samples);
  return samples;
}

}  // namespace

void add_measurements(RunReport& report, std::span<const StepRecord> steps,
                      std::span<const WorkerRecord* const> workers) {
  const plan::Plan& plan = report.plan;
  const bool streams = plan.workers.front().program.stream.has_value();
  report.step = step_time(steps, streams);
  const double samples = step_samples(steps, streams);
  if (report.step.count() > 0) report.samples_per_s = samples / report.step.count();
  Seconds busy{};
  for (std::size_t w = 0; w < workers.size(); ++w) {
    report.workers.push_back(
        worker_report(WorkerId{static_cast<int>(w)}, *workers[w], report.step, report.steps));
    if (swaps(plan)) {
      report.workers.back().swaps_in = swaps_report(workers[w]->swaps.in);
      report.workers.back().swaps_out = swaps_report(workers[w]->swaps.out);
    }
    busy += report.workers.back().busy;
  }
  report.bubble_fraction = fraction_idle(busy, static_cast<double>(workers.size()), report.step);
  report.op_times = op_times(plan, workers);
  add_comparisons(report, plan.predicted, std::max(1.0, samples / plan.training.mini_batch));
  if (swaps(plan)) compare_swaps(report);
  const auto of_last = [&](const StepRecord& step) { return step.range == steps.back().range; };
  report.last_steps = last_steps(plan, workers, std::ranges::count_if(steps, of_last));
  report.last_steps.samples = samples_of(report.last_steps, steps);
  report.instructions = instruction_report(report, workers);
  report.deviation = deviation_of(report, steps, workers);
}

// Replicas of a stage share a row: their counts are added, the median is the first replica's with the most
// operations, and each one's own stands beside it.
std::vector<OpTime> op_times(const plan::Plan& plan, std::span<const WorkerRecord* const> workers) {
  std::map<std::pair<StageId, plan::OpKind>, OpTime> rows;
  std::map<std::pair<StageId, plan::OpKind>, std::int64_t> most;
  for (std::size_t w = 0; w < workers.size(); ++w) {
    for (const auto& [key, times] : workers[w]->op_times) {
      const std::pair by_stage{key.second, key.first};
      OpTime& row = rows[by_stage];
      row.kind = key.first;
      row.stage = key.second;
      row.count += times.count();
      row.predicted = plan::promised_time(plan, plan.predicted, row.kind, row.stage);
      add_replica(row, plan, WorkerId{static_cast<int>(w)}, times.median());
      if (times.count() <= most[by_stage]) continue;
      most[by_stage] = times.count();
      row.median = times.median();
    }
  }
  std::vector<OpTime> list;
  for (const auto& [key, row] : rows) list.push_back(row);
  return list;
}

std::string make_trace(std::span<const WorkerRecord* const> workers, const RunReport& report) {
  plan::SimulationResult events;
  Seconds begin = Seconds::max();  // of the last steps
  for (const WorkerRecord* worker : workers) {
    for (const OpRecord& op : worker->ops) {
      events.ops.push_back(op.event);
      if (op.step >= report.last_steps.first_step - 1) begin = std::min(begin, op.event.start);
    }
    for (const MessageRecord& message : worker->messages) events.messages.push_back(message.event);
    events.busy.push_back({});
    events.memory.push_back({});
  }
  const auto by_start = [](const auto& a, const auto& b) { return a.start < b.start; };
  std::stable_sort(events.ops.begin(), events.ops.end(), by_start);
  std::stable_sort(events.messages.begin(), events.messages.end(), by_start);
  for (const plan::OpEvent& op : events.ops) events.makespan = std::max(events.makespan, op.end);
  std::vector<plan::OpEvent> predicted;
  const bool known = report.plan.predicted.stages.size() == report.plan.stages.size();
  if (known && report.last_steps.steps > 0 && report.last_steps.ops.size() <= kMostOps)
    predicted = predicted_timeline(report.plan, report.last_steps.steps).result.ops;
  for (plan::OpEvent& op : predicted) op.start += begin, op.end += begin;
  return plan::chrome_trace(events, {}, report.context, predicted);
}

FramesReport frames_report(std::span<const WorkerRecord* const> workers, int stages) {
  std::map<std::int64_t, Seconds> entered, left;  // by frame of the training
  for (const WorkerRecord* worker : workers) {
    for (const OpRecord& op : worker->ops) {
      if (op.event.op.kind != plan::OpKind::forward) continue;
      const int stage = number(op.event.op.stage);
      if (stage == 0) entered[op.step] = op.event.start;
      if (stage == stages - 1) left[op.step] = op.event.end;
    }
  }
  FramesReport report;
  std::vector<Seconds> latencies;
  for (const auto& [frame, end] : left) {
    const auto first = entered.find(frame);
    if (first == entered.end()) continue;
    latencies.push_back(end - first->second);
    const auto behind = std::ranges::count_if(std::next(first), entered.end(),
                                              [&](const auto& other) { return other.second < end; });
    report.delay = std::max<std::int64_t>(report.delay, behind);
  }
  report.latency = median(std::move(latencies));
  return report;
}

}  // namespace pp::run
