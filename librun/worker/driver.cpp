#include "librun/worker/driver.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "libprofile/core/error.h"
#include "libprofile/measure/compute_device.h"

namespace pp::run {

namespace {

// Steps that may run beyond the first unfinished one: this one and the next; in streams enough to fill all
// windows twice.
Step find_lead(const Job& job) {
  Step windows = 0;
  for (const plan::Stream& stream : job.streams) windows += std::ssize(stream.prologue) + 1;
  return job.setup.streams ? 2 * windows : 2;
}

void check_finite(double loss, const std::string& where, const RunOptions& options) {
  if (std::isfinite(loss)) return;
  throw Error(ErrorKind::run, where + ": the loss is " + std::to_string(loss) +
                                  "; lower the learning rate of " + Json(options.learning_rate).dump() +
                                  " or check the data");
}

}  // namespace

Crew::Crew(Job& job, Threads::Start start) : job_(job), threads_(std::move(start)) {
  std::vector<at::Device> devices;
  for (const Device& device : job.setup.devices)
    devices.push_back(profile::tensor_device(device.kind, device.index));
  profile::open_devices(devices);
  for (const plan::Worker& worker : job.plan.workers)
    workers_.push_back(std::make_unique<Worker>(job, worker.id));
  try {
    for (const auto& worker : workers_) threads_.add([&worker = *worker] { worker.run(); });
  } catch (...) {
    job_.coordinator.stop(std::current_exception());
    throw;
  }
}

Crew::~Crew() {
  job_.coordinator.stop(nullptr);
  join();
}

std::optional<WorkerId> Crew::join_within(Seconds most) {
  const std::optional<std::size_t> left = threads_.join_within(most);
  if (!left) return std::nullopt;
  return job_.plan.workers[*left].id;
}

Driver::Driver(Job& job, Observer& observer, const std::function<bool()>& interrupted)
    : job_(job), observer_(observer), interrupted_(interrupted), lead_(find_lead(job)) {}

void Driver::drive() {
  const int epochs = job_.setup.length.epochs();
  command(0);
  for (int epoch = 0; epoch < epochs && !ended_early_; ++epoch) {
    command(epoch + 1);  // so that an epoch begins while the last one ends
    run_epoch(epoch);
  }
  poll();
  job_.commands.stop();
}

void Driver::command(int epoch) {
  const Length& length = job_.setup.length;
  if (ended_early_ || epoch >= length.epochs()) return;
  const Step first = length.first(epoch);
  job_.commands.train(epoch, {.first = first, .end = first + length.count(epoch), .epoch_first = first});
  if (job_.evaluates()) job_.commands.evaluate(epoch, job_.test_shape.count);
}

bool Driver::poll() {
  if (ended_early_ || !interrupted_()) return ended_early_;
  ended_early_ = true;
  end_ = job_.commands.cut();
  const std::string end = std::to_string(end_) + " of " + std::to_string(job_.setup.length.total);
  tell([&] { observer_.warning("interrupted: the run ends with step " + end); });
  return true;
}

template <class Call>
void Driver::tell(Call&& call) {
  const Phase phase(job_.coordinator);
  call();
}

void Driver::run_epoch(int epoch) {
  const Length& length = job_.setup.length;
  const Step first = length.first(epoch), count = length.count(epoch);
  const Seconds start = now();
  last_end_ = start;
  grant(first, 0);
  Step done = 0;
  for (; done < count; ++done) {
    const std::optional<StepResult> result = await(first + done);
    if (!result) break;
    steps_.push_back(record(epoch, first + done, *result));
    last_end_ = std::max(last_end_, steps_.back().end);
    tell_step(first + done, steps_.back(), *result);
    poll();
    grant(first, done + 1);
  }
  if (done == count) finish_epoch(epoch, start, std::span(steps_).last(static_cast<std::size_t>(count)));
}

void Driver::grant(Step first, Step done) {
  const Step round = job_.setup.round;
  job_.commands.grant(first + (done + lead_ + round - 1) / round * round);
}

std::optional<StepResult> Driver::await(Step step) {
  const auto beyond = [&] { return poll() && step >= end_; };
  return job_.ledger.await_step(step, beyond);
}

StepRecord Driver::record(int epoch, Step step, const StepResult& result) const {
  StepRecord record;
  record.epoch = epoch;
  record.samples = job_.setup.length.epoch.size(step - job_.setup.length.first(epoch));
  record.end = result.end - job_.start;
  record.time = std::max(Seconds(0), record.end - last_end_);
  Seconds busy{};
  for (const StepFigures& worker : result.workers) busy += worker.busy;
  record.bubble_fraction = fraction_idle(busy, static_cast<double>(result.workers.size()), record.time);
  const std::vector<int> sizes = plan::micro_batch_sizes(record.samples, job_.plan.training.micro_batches);
  for (std::size_t m = 0; m < sizes.size(); ++m) record.loss += result.losses[m] * sizes[m] / record.samples;
  check_finite(record.loss, "step " + std::to_string(step + 1), job_.options);
  return record;
}

void Driver::tell_step(Step step, const StepRecord& record, const StepResult& result) {
  Progress progress{record.epoch, step + 1, job_.setup.length.total, record.loss};
  if (record.time.count() > 0) progress.samples_per_s = record.samples / record.time.count();
  progress.learning_rate = rate_at(job_.setup.rates, job_.options.learning_rate, job_.setup.length.total, step);
  progress.samples = record.samples;
  progress.elapsed = record.end;
  progress.bubble_fraction = record.bubble_fraction;
  for (const StepFigures& worker : result.workers) {
    progress.peak = std::max(progress.peak, worker.peak);
    if (worker.gradient_norm) progress.gradient_norm = worker.gradient_norm;
  }
  tell([&] { observer_.step(progress); });
}

void Driver::finish_epoch(int epoch, Seconds start, std::span<const StepRecord> steps) {
  EpochReport report;
  report.epoch = epoch;
  double samples = 0;
  Seconds end{};
  for (const StepRecord& step : steps) {
    report.train_loss += step.loss * step.samples;
    samples += step.samples;
    end = std::max(end, step.end);
  }
  report.train_loss /= samples;
  report.samples_per_s = samples / (end - start).count();
  report.last_step = job_.setup.length.first(epoch) + std::ssize(steps);
  report.elapsed = end;
  if (job_.evaluates()) add_evaluation(report);
  epochs_.push_back(report);
  tell([&] { observer_.epoch(report); });
}

void Driver::add_evaluation(EpochReport& report) {
  const std::optional<EvaluationPart> sum = job_.ledger.await_evaluation(report.epoch, [&] { return poll(); });
  if (!sum) return;
  report.evaluation = now() - report.elapsed;
  report.test_loss = sum->loss_sum / static_cast<double>(sum->samples);
  check_finite(*report.test_loss, "evaluation after epoch " + std::to_string(report.epoch), job_.options);
  if (sum->predictions == 0) return;
  report.test_accuracy = static_cast<double>(sum->correct) / static_cast<double>(sum->predictions);
}

}  // namespace pp::run
