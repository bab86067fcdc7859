#include "librun/drive/driver.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>
#include <string>
#include <utility>

#include "libprofile/core/error.h"

namespace pp::run {

namespace {

// So long messages between ranks may take, there and back, also where many ranks share a core.
constexpr Seconds kPassesAhead{0.1};

// Of the first operation of a step.
Seconds begin_of(const StepResult& result) {
  Seconds begin = Seconds::max();
  for (const StepFigures& worker : result.workers) begin = std::min(begin, worker.begin);
  return begin;
}

void check_finite(double loss, const std::string& where, const RunOptions& options) {
  if (std::isfinite(loss)) return;
  throw Error(ErrorKind::run, where + ": the loss is " + std::to_string(loss) +
                                  "; lower the learning rate of " + Json(options.learning_rate).dump() +
                                  " or check the data");
}

std::string not_finite(const StepResult& result) {
  for (const StepFigures& worker : result.workers) {
    if (!worker.not_finite.empty()) return worker.not_finite;
  }
  return {};
}

}  // namespace

Driver::Driver(Job& job, Observer& observer, const std::function<bool()>& interrupted)
    : DriveLoop(job, interrupted),
      observer_(observer),
      done_(job.setup.start.position.step),
      loss_scale_(job.setup.start.position.loss_scale),
      evaluated_(job.setup.start.position.evaluated),
      slow_devices_(job.plan) {
  const Position& start = job.setup.start.position;
  epoch_.loss = start.epoch_loss;
  epoch_.weight = start.epoch_samples;
}

void Driver::drive() {
  snapshot_time_ = now();
  make_up_evaluation();
  command();
  while (!parts_.empty()) {
    command();  // so that a part begins while the last one ends
    run_part();
    if (parts_.empty()) command();
  }
  poll();
  const Step end = stopped_by_nan_ ? std::max(done_, snapshot_step_) : done_;
  if (job_.checkpointer) command_snapshot(end, /*last=*/true);
  job_.commands.stop();
  if (job_.checkpointer) job_.checkpointer->await_written(snapshots_);
  tell_unwritten();
}

void Driver::tell_unwritten() {
  if (!job_.checkpointer) return;
  const std::vector<std::string> failures = job_.checkpointer->failures();
  for (; unwritten_ < failures.size(); ++unwritten_) tell([&] { observer_.warning(failures[unwritten_]); });
}

std::optional<EpochPart> Driver::part_from(Step first) const {
  const Length& length = job_.setup.length;
  if (first >= length.total) return std::nullopt;
  EpochPart part{.epoch = static_cast<int>(first / length.epoch.steps()), .first = first};
  part.end = length.first(part.epoch) + length.count(part.epoch);
  for (const Step every : {job_.setup.snapshot_every, job_.setup.evaluate_every})
    if (every > 0) part.end = std::min(part.end, (first / every + 1) * every);
  return part;
}

void Driver::command() {
  if (interrupted() || stopped_early() || (!parts_.empty() && acts_at(parts_.back().end))) return;
  const std::optional<EpochPart> part = part_from(parts_.empty() ? done_ : parts_.back().end);
  if (!part) return;
  const Length& length = job_.setup.length;
  const Step epoch_first = length.first(part->epoch);
  job_.commands.train(part->epoch, {.first = part->first, .end = part->end, .epoch_first = epoch_first});
  const Step every = job_.setup.snapshot_every;
  // The last one comes at the end; one that holds the result of an evaluation, behind that.
  if (every > 0 && part->end % every == 0 && part->end < length.total && !acts_at(part->end))
    command_snapshot(part->end, /*last=*/false);
  if (evaluates_at(part->end)) command_evaluation(part->end);
  parts_.push_back(*part);
}

void Driver::command_snapshot(Step step, bool last) {
  job_.commands.snapshot(step, last);
  ++snapshots_;
  snapshot_step_ = step;
  if (step > done_ && !stopped_by_nan_) {
    awaited_snapshots_.push_back(step);
  } else {
    job_.checkpointer->reached(step, position());
  }
}

void Driver::cut(Commands::Cut what) {
  const Step end = job_.commands.cut(what);
  while (!parts_.empty() && parts_.back().first >= end) parts_.pop_back();
  if (!parts_.empty()) parts_.back().end = end;
  while (!awaited_snapshots_.empty() && awaited_snapshots_.back() > end) {
    awaited_snapshots_.pop_back();
    --snapshots_;
  }
}

void Driver::cut_short() {
  cut(Commands::Cut::evaluation_too);
  const std::string end = std::to_string(parts_.empty() ? done_ : parts_.back().end) + " of " +
                          std::to_string(job_.setup.length.total);
  tell([&] { observer_.warning("interrupted: the run ends with step " + end); });
}

std::optional<CheckpointChoice> Driver::checkpoint_choice() const {
  const std::optional<Seconds>& between_failures = job_.options.between_failures;
  const std::optional<Seconds> cost = checkpoint_cost_.value();
  if (!between_failures || !cost) return std::nullopt;
  return CheckpointChoice{*cost, best_interval(*cost, *between_failures)};
}

std::optional<Seconds> Driver::checkpoint_interval() const {
  if (!job_.options.checkpoint_auto) return job_.options.checkpoint_time;
  if (const std::optional<CheckpointChoice> choice = checkpoint_choice()) return choice->interval;
  if (snapshot_step_ >= 0 || !checkpoint_cost_.ready()) return std::nullopt;
  return Seconds();
}

void Driver::weigh_checkpoints() {
  if (!job_.options.checkpoint_auto) return;
  const StepRecord& step = steps_.back();
  const auto time = [&](Seconds since_start) {
    return job_.start + std::chrono::duration_cast<Coordinator::Clock::duration>(since_start);
  };
  const bool known = checkpoint_choice().has_value();
  checkpoint_cost_.add(step.time, job_.checkpointer->made_between(time(step.end - step.time), time(step.end)));
  const std::optional<CheckpointChoice> choice = checkpoint_choice();
  if (known || !choice) return;
  const std::string text = "--every auto: the first checkpoint took " + to_text(choice->cost) +
                           " from the training, so with " + to_text(*job_.options.between_failures) +
                           " between failures the next one comes after " + to_text(choice->interval);
  tell([&] { observer_.information(text); });
}

void Driver::take_timed_snapshot() {
  const std::optional<Seconds> every = checkpoint_interval();
  if (!every || interrupted() || now() - snapshot_time_ < *every) return;
  cut(Commands::Cut::training);
  const Step end = parts_.empty() ? done_ : parts_.back().end;
  if (!acts_at(end)) {  // else it is due behind the evaluation
    snapshot_time_ = now();
    if (end != snapshot_step_ && end != job_.setup.length.total) command_snapshot(end, /*last=*/false);
  }
  command();
}

void Driver::run_part() {
  const Length& length = job_.setup.length;
  const auto [epoch, first, end] = parts_.front();
  if (first == length.first(epoch)) epoch_ = {};
  run();
  if (!parts_.empty()) parts_.pop_front();
  ++ranges_;
  std::optional<EvaluationReport> evaluation;
  if (done_ > first && evaluates_at(done_)) evaluation = await_evaluation();
  if (done_ == length.first(epoch) + length.count(epoch)) {
    finish_epoch(epoch, evaluation);
  } else if (evaluation) {
    tell([&] { observer_.evaluation(*evaluation); });
  }
  if (evaluation && job_.options.acts_on_evaluations()) act_on(*evaluation);
}

void Driver::take() {
  const auto [epoch, first, end] = parts_.front();
  const std::optional<StepResult> result = await();
  if (!result || !goes_on_after(*result)) return;
  if (done_ == first) begin_part(begin_of(*result));
  count(record(epoch, *result));
  history_.add(steps_.back().time, result->workers);
  tell_step(epoch, *result);
  watch_devices(*result);
  tell_unwritten();
  poll();
  weigh_checkpoints();
  take_timed_snapshot();
}

void Driver::begin_part(Seconds begin) {
  if (epoch_.samples_here > 0 && evaluates_at(done_))
    epoch_.evaluations += std::max(Seconds(0), begin - last_end_);
  last_end_ = std::max(last_end_, begin);
  if (epoch_.samples_here == 0) epoch_.start = begin;
}

Step Driver::lead() const {
  if (job_.setup.streams || job_.setup.placement.alone()) return job_.lead;
  constexpr std::size_t kLast = 3;
  constexpr Step kLeast = 2;  // this step and the next
  Seconds longest{};
  for (std::size_t i = steps_.size() - std::min(kLast, steps_.size()); i < steps_.size(); ++i)
    longest = std::max(longest, steps_[i].time);
  if (longest.count() <= 0) return kLeast;
  return std::max(kLeast, static_cast<Step>(std::min(kPassesAhead / longest, static_cast<double>(job_.lead))));
}

void Driver::permit() {
  if (parts_.empty()) return;
  const Step round = job_.setup.round, first = parts_.front().first, ahead = lead();
  const Step end = first + (done_ - first + ahead + round - 1) / round * round;
  if (end < granted_ + (job_.setup.streams ? 1 : ahead / 2)) return;
  granted_ = end;
  job_.commands.grant(end);
}

std::optional<StepResult> Driver::await() {
  const auto beyond = [&] { return poll() && (parts_.empty() || done_ >= parts_.back().end); };
  const Step half = job_.setup.streams ? 1 : lead() / 2;  // in streams replicas may complete steps in any order
  const Step last = std::min(done_ + half, parts_.front().end) - 1;
  return job_.ledger.await_step(done_, last, beyond);
}

StepRecord Driver::record(int epoch, const StepResult& result) const {
  StepRecord record;
  record.range = job_.setup.streams ? ranges_ : epoch;
  const EpochShape& shape = job_.setup.length.epoch;
  const Step in_epoch = done_ - job_.setup.length.first(epoch);
  record.samples = shape.step_size(in_epoch);
  record.end = result.end - job_.start;
  record.time = std::max(Seconds(0), record.end - last_end_);
  Seconds busy{};
  for (const StepFigures& worker : result.workers) busy += worker.busy;
  record.bubble_fraction = fraction_idle(busy, static_cast<double>(result.workers.size()), record.time);
  const std::vector<int> sizes = shape.step_sizes(in_epoch);
  const std::span weights = std::span(result.weights).first(sizes.size());
  record.weight = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (record.weight == 0) record.loss = std::numeric_limits<double>::quiet_NaN();
  for (std::size_t m = 0; m < sizes.size(); ++m) {
    if (weights[m] != 0) record.loss += result.losses[m] * weights[m] / record.weight;
  }
  record.skipped = !not_finite(result).empty();
  if (record.weight == 0 && !record.skipped) {
    throw Error(ErrorKind::run, "step " + std::to_string(done_ + 1) +
                                    ": none of its labels counts, so it has no loss; give --on-nan skip, or "
                                    "larger mini-batches");
  }
  if (!record.skipped) check_finite(record.loss, "step " + std::to_string(done_ + 1), job_.options);
  return record;
}

// Workers that stop make no update from this step on: however far they run before they know, what they have is
// the state of the last step that is done, which is what snapshots of later steps hold.
bool Driver::goes_on_after(const StepResult& result) {
  const std::string why = not_finite(result);
  if (why.empty()) return true;
  const bool stops = job_.options.on_nan == OnNan::stop;
  tell([&] {
    observer_.warning(why +
                      (stops ? "; the run ends with the weights of the step before" : "; the step is skipped"));
  });
  if (!stops) return true;
  stopped_by_nan_ = true;
  end_early();
  cut(Commands::Cut::evaluation_too);
  parts_.clear();
  for (const Step step : std::exchange(awaited_snapshots_, {})) job_.checkpointer->reached(step, position());
  return false;
}

void Driver::count(const StepRecord& step) {
  ++done_;
  keep_last(steps_, step);
  last_end_ = std::max(last_end_, step.end);
  if (step.skipped) {
    ++skipped_;
  } else {
    epoch_.loss += step.loss * step.weight;
    epoch_.weight += step.weight;
  }
  if (job_.options.scales_dynamically()) loss_scale_ = next_loss_scale(loss_scale_, !step.skipped);
  epoch_.samples_here += step.samples;
  epoch_.end = std::max(epoch_.end, step.end);
  if (awaited_snapshots_.empty() || awaited_snapshots_.front() != done_) return;
  awaited_snapshots_.pop_front();
  job_.checkpointer->reached(done_, position());
}

void Driver::tell_step(int epoch, const StepResult& result) {
  const StepRecord& record = steps_.back();
  const Step total = job_.setup.length.total;
  Progress progress{epoch, done_, total, record.loss};
  if (record.time.count() > 0) progress.samples_per_s = record.samples / record.time.count();
  progress.learning_rate = rate_at(job_.setup.rates, job_.options.learning_rate, total, done_ - 1);
  if (job_.options.scales_losses()) progress.loss_scale = loss_scale_.factor;
  progress.samples = record.samples;
  progress.elapsed = record.end;
  progress.bubble_fraction = record.bubble_fraction;
  for (const StepFigures& worker : result.workers) {
    progress.peak = std::max(progress.peak, worker.peak);
    if (worker.gradient_norm) progress.gradient_norm = worker.gradient_norm;
  }
  tell([&] { observer_.step(progress); });
}

void Driver::watch_devices(const StepResult& result) {
  const StepRecord& step = steps_.back();
  const double mini_batches = static_cast<double>(step.samples) / job_.plan.training.mini_batch;
  const SlowDevices::Changes changes = slow_devices_.add(done_, step.time, mini_batches, result.workers);
  if (!changes.any) return;
  tell([&] {
    for (const SlowDevice& slow : changes.slow) observer_.information(slow_device_line(slow, job_.plan));
    observer_.speeds(slow_devices_.factors());
  });
}

Position Driver::position() const {
  const Step length = job_.setup.length.epoch.steps();
  Position position{.step = done_, .epoch = static_cast<int>(done_ / length), .epoch_steps = done_ % length};
  if (position.epoch_steps > 0) {
    position.epoch_loss = epoch_.loss;
    position.epoch_samples = epoch_.weight;
  }
  position.loss_scale = loss_scale_;
  position.evaluated = evaluated_;
  return position;
}

void Driver::finish_epoch(int epoch, const std::optional<EvaluationReport>& evaluation) {
  EpochReport report;
  report.epoch = epoch;
  // A dynamic loss scale is still on its way down.
  if (epoch_.weight == 0 && !job_.options.scales_dynamically()) {
    throw Error(ErrorKind::run, "epoch " + std::to_string(epoch) +
                                    ": every step was skipped; lower the learning rate or check the data");
  }
  report.train_loss = epoch_.loss / epoch_.weight;
  report.samples_per_s = epoch_.samples_here / (epoch_.end - epoch_.start - epoch_.evaluations).count();
  report.last_step = done_;
  report.elapsed = epoch_.end;
  if (evaluation) {
    report.test_loss = evaluation->test_loss;
    report.test_accuracy = evaluation->test_accuracy;
    report.evaluation = evaluation->time;
  }
  keep_last(epochs_, report);
  tell([&] { observer_.epoch(report); });
}

bool Driver::evaluates_at(Step step) const {
  return job_.evaluates() && (step % job_.setup.evaluate_every == 0 || step == job_.setup.length.total);
}

// Every evaluation has its own number, also one that is commanded again after a cut.
void Driver::command_evaluation(Step step) {
  job_.commands.evaluate(static_cast<int>((step - 1) / job_.setup.evaluate_every), job_.test_shape.count);
}

std::optional<EvaluationReport> Driver::await_evaluation() {
  const auto number = static_cast<int>((done_ - 1) / job_.setup.evaluate_every);
  const std::optional<EvaluationPart> sum = job_.ledger.await_evaluation(number, [&] { return poll(); });
  if (!sum) return std::nullopt;
  const int epoch = static_cast<int>((done_ - 1) / job_.setup.length.epoch.steps());
  EvaluationReport report{.epoch = epoch, .step = done_};
  if (sum->weight != 0) report.test_loss = sum->loss_sum / sum->weight;
  if (!report.test_loss || !std::isfinite(*report.test_loss)) warn_of_evaluation(report);
  report.elapsed = last_end_;
  report.time = now() - last_end_;
  if (sum->predictions > 0)
    report.test_accuracy = static_cast<double>(sum->correct) / static_cast<double>(sum->predictions);
  if (job_.options.evaluate_every) keep_last(evaluations_, report);
  return report;
}

bool Driver::stopped_early() const {
  const std::optional<std::int64_t>& most = job_.options.early_stop;
  return most && evaluated_ && evaluated_->since_best >= *most;
}

void Driver::act_on(const EvaluationReport& evaluation) {
  if (!evaluated_) evaluated_.emplace().best_loss = std::numeric_limits<double>::max();
  const bool better = evaluation.test_loss && *evaluation.test_loss < evaluated_->best_loss;
  if (better) {
    *evaluated_ = {.step = done_, .best_loss = *evaluation.test_loss, .best_step = done_};
  } else {
    evaluated_->step = done_;
    ++evaluated_->since_best;
  }
  if (!job_.checkpointer || done_ == job_.setup.length.total || interrupted() || stopped_early()) return;
  const Step every = job_.setup.snapshot_every;
  const std::optional<Seconds> time = checkpoint_interval();
  const bool due = (every > 0 && done_ % every == 0) || (time && now() - snapshot_time_ >= *time);
  if (!due && !(better && job_.options.keep_best)) return;
  snapshot_time_ = now();
  command_snapshot(done_, /*last=*/false);
}

void Driver::make_up_evaluation() {
  if (done_ == 0 || !acts_at(done_) || (evaluated_ && evaluated_->step == done_)) return;
  const RunOptions& options = job_.options;  // what is elsewhere is no checkpoint to keep
  if (options.keep_best && !has_checkpoints(place_of_checkpoint(options.checkpoint, done_))) return;
  last_end_ = now();
  command_evaluation(done_);
  const std::optional<EvaluationReport> evaluation = await_evaluation();
  if (!evaluation) return;
  tell([&] { observer_.evaluation(*evaluation); });
  act_on(*evaluation);
}

// A figure; the training does not depend on it.
void Driver::warn_of_evaluation(const EvaluationReport& report) {
  if (std::exchange(warned_of_evaluation_, true)) return;
  const std::string why =
      report.test_loss ? "the test loss is not finite; look at the test data, and at the range of the dtype"
                       : "none of the test labels counts, so there is no test loss";
  tell([&] {
    observer_.warning("evaluation after step " + std::to_string(report.step) + ": " + why +
                      "; the training goes on");
  });
}

}  // namespace pp::run
