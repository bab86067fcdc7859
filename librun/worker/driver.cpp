#include "librun/worker/driver.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "libprofile/core/error.h"
#include "libprofile/measure/compute_device.h"

namespace pp::run {

namespace {

// Units that may run beyond the first unfinished one: this step and the next; in streams enough to fill all
// windows twice.
Unit find_lead(const Job& job) {
  if (!job.setup.streams) return 2;
  Unit windows = 0;
  for (const plan::Worker& worker : job.plan.workers) {
    windows += static_cast<Unit>(worker.program.stream->prologue.size()) + 1;
  }
  return 2 * windows;
}

void check_finite(double loss, const std::string& where, const RunOptions& options) {
  if (std::isfinite(loss)) return;
  throw Error(ErrorKind::run, where + ": the loss is " + std::to_string(loss) +
                                  "; lower the learning rate of " + Json(options.learning_rate).dump() +
                                  " or check the data");
}

}  // namespace

Crew::Crew(Job& job) : job_(job) {
  std::vector<at::Device> devices;
  for (const Device& device : job.setup.devices)
    devices.push_back(profile::tensor_device(device.kind, device.index));
  profile::open_devices(devices);
  for (const plan::Worker& worker : job.plan.workers)
    workers_.push_back(std::make_unique<Worker>(job, worker.id));
  for (const auto& worker : workers_) threads_.emplace_back([&worker = *worker] { worker.run(); });
}

Crew::~Crew() {
  job_.coordinator.stop(nullptr);
  join();
}

void Crew::join() {
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

Driver::Driver(Job& job, Observer& observer, const std::function<bool()>& interrupted)
    : job_(job), observer_(observer), interrupted_(interrupted), lead_(find_lead(job)) {}

void Driver::drive() {
  for (int epoch = 0; epoch < job_.setup.length.epochs() && !closed_; ++epoch) run_epoch(epoch);
  job_.gate.close();
}

void Driver::run_epoch(int epoch) {
  const Length& length = job_.setup.length;
  const Unit first = length.first(epoch), count = length.count(epoch);
  const Seconds start = now();
  grant(first, count, 0);
  Unit done = 0;
  for (; done < count && (!closed_ || done < granted_); ++done) {
    const UnitRecord unit = await(epoch, first + done);
    units_.push_back(unit);
    const double samples = static_cast<double>(unit.samples) * static_cast<double>(done + 1);
    observer_.step({epoch, first + done + 1, length.total, unit.loss, samples / (now() - start).count()});
    if (!closed_ && interrupted_()) {
      closed_ = true;
      job_.gate.close();
    }
    grant(first, count, done + 1);
  }
  if (done == count) finish_epoch(epoch, start, std::span(units_).last(static_cast<std::size_t>(count)));
}

void Driver::grant(Unit first, Unit count, Unit done) {
  if (closed_) return;
  const Unit round = job_.setup.round;
  granted_ = std::min(count, (done + lead_ + round - 1) / round * round);
  job_.gate.grant(first + granted_);
}

UnitRecord Driver::await(int epoch, Unit unit) {
  const UnitResult result = job_.ledger.await_unit(unit);
  UnitRecord record;
  record.epoch = epoch;
  record.samples = job_.setup.length.epoch.size(unit - job_.setup.length.first(epoch));
  record.end = result.end - job_.start;
  const std::vector<int> sizes = plan::micro_batch_sizes(record.samples, job_.plan.training.micro_batches);
  for (std::size_t m = 0; m < sizes.size(); ++m) record.loss += result.losses[m] * sizes[m] / record.samples;
  check_finite(record.loss, "step " + std::to_string(unit + 1), job_.options);
  return record;
}

void Driver::finish_epoch(int epoch, Seconds start, std::span<const UnitRecord> units) {
  EpochReport report;
  report.epoch = epoch;
  double samples = 0;
  Seconds end{};
  for (const UnitRecord& unit : units) {
    report.train_loss += unit.loss * unit.samples;
    samples += unit.samples;
    end = std::max(end, unit.end);
  }
  report.train_loss /= samples;
  report.samples_per_s = samples / (end - start).count();
  if (job_.evaluates()) {
    const EvaluationPart sum = job_.ledger.await_evaluation(epoch);
    report.test_loss = sum.loss_sum / static_cast<double>(sum.samples);
    check_finite(*report.test_loss, "evaluation after epoch " + std::to_string(epoch), job_.options);
    if (sum.predictions > 0) {
      report.test_accuracy = static_cast<double>(sum.correct) / static_cast<double>(sum.predictions);
    }
  }
  epochs_.push_back(report);
  observer_.epoch(report);
}

}  // namespace pp::run
