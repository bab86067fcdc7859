#include "librun/run.h"

#include <torch/version.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "libprofile/core/error.h"
#include "libprofile/core/file.h"
#include "libprofile/measure/memory_meter.h"
#include "librun/checkpoint/weights.h"
#include "librun/report/build.h"
#include "librun/worker/worker.h"

namespace pp::run {

namespace {

// The workers' threads; however the driver's work ends, all of them are stopped and joined.
class Crew {
 public:
  explicit Crew(Job& job) : job_(job) {
    for (const plan::Worker& worker : job.plan.workers)
      workers_.push_back(std::make_unique<Worker>(job, worker.id));
    for (const auto& worker : workers_) threads_.emplace_back([&worker = *worker] { worker.run(); });
  }
  ~Crew() {
    job_.coordinator.stop(nullptr);
    join();
  }
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  void join() {
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }
  const std::vector<std::unique_ptr<Worker>>& workers() const { return workers_; }

 private:
  Job& job_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::thread> threads_;
};

// The calling thread's part: lets units start, collects what they bring, tells the observer.
class Driver {
 public:
  Driver(Job& job, Observer& observer, const std::function<bool()>& interrupted)
      : job_(job), observer_(observer), interrupted_(interrupted), lead_(find_lead(job)) {}

  void drive() {
    const Length& length = job_.setup.length;
    for (int epoch = 0; epoch < length.epochs() && !closed_; ++epoch) run_epoch(epoch);
    job_.gate.close();
  }

  bool interrupted() const { return closed_; }
  std::vector<UnitRecord> units;
  std::vector<EpochReport> epochs;

 private:
  // Units that may run beyond the first unfinished one: the next step; in streams enough to fill all windows
  // twice, in whole rounds of the replicas.
  static Unit find_lead(const Job& job) {
    if (!job.setup.streams) return 2;
    Unit windows = 0;
    for (const plan::Worker& worker : job.plan.workers)
      windows += static_cast<Unit>(worker.program.stream->prologue.size()) + 1;
    return 2 * windows;
  }

  void run_epoch(int epoch) {
    const Length& length = job_.setup.length;
    const Unit first = length.first(epoch), count = length.count(epoch);
    const Seconds start = now();
    grant(first, count, 0);
    Unit done = 0;
    for (; done < count && (!closed_ || done < granted_); ++done) {
      const UnitRecord unit = await(epoch, first + done);
      units.push_back(unit);
      observer_.step(
          {epoch, first + done + 1, length.total, unit.loss,
           static_cast<double>(unit.samples) * static_cast<double>(done + 1) / (now() - start).count()});
      if (!closed_ && interrupted_()) {
        closed_ = true;
        job_.gate.close();
      }
      grant(first, count, done + 1);
    }
    if (done == count) finish_epoch(epoch, start);
  }

  void grant(Unit first, Unit count, Unit done) {
    if (closed_) return;
    const Unit round = job_.setup.round;
    granted_ = std::min(count, (done + lead_ + round - 1) / round * round);
    job_.gate.grant(first + granted_);
  }

  UnitRecord await(int epoch, Unit unit) {
    const bool streams = job_.setup.streams;
    const int micro_batches = job_.plan.training.micro_batches;
    const auto participants = static_cast<int>(streams ? job_.plan.stages.size() : job_.plan.workers.size());
    const UnitResult result = job_.ledger.await_unit(unit, micro_batches, participants);
    UnitRecord record;
    record.epoch = epoch;
    record.samples = job_.setup.length.epoch.size(unit - job_.setup.length.first(epoch));
    record.end = result.end - job_.start;
    const std::vector<int> sizes = plan::micro_batch_sizes(record.samples, micro_batches);
    for (std::size_t m = 0; m < sizes.size(); ++m) record.loss += result.losses[m] * sizes[m] / record.samples;
    return record;
  }

  void finish_epoch(int epoch, Seconds start) {
    EpochReport report;
    report.epoch = epoch;
    std::int64_t samples = 0;
    Seconds end{};
    for (const UnitRecord& unit : units) {
      if (unit.epoch != epoch) continue;
      report.train_loss += unit.loss * unit.samples;
      samples += unit.samples;
      end = std::max(end, unit.end);
    }
    report.train_loss /= static_cast<double>(samples);
    report.samples_per_s = static_cast<double>(samples) / (end - start).count();
    if (job_.evaluates()) {
      const EvaluationPart sum = job_.ledger.await_evaluation(epoch, job_.evaluation_count());
      report.test_loss = sum.loss_sum / static_cast<double>(sum.samples);
      if (sum.predictions > 0)
        report.test_accuracy = static_cast<double>(sum.correct) / static_cast<double>(sum.predictions);
    }
    epochs.push_back(report);
    observer_.epoch(report);
  }

  Seconds now() const { return Coordinator::Clock::now() - job_.start; }

  Job& job_;
  Observer& observer_;
  const std::function<bool()>& interrupted_;
  Unit lead_;
  Unit granted_ = 0;  ///< of the current epoch
  bool closed_ = false;
};

// First replica of each stage, stages merged into model order: the same for every plan of the job.
NamedTensors collect_weights(const Job& job, const Crew& crew) {
  std::vector<std::pair<int, NamedTensors>> by_layer;
  for (std::size_t s = 0; s < job.plan.stages.size(); ++s) {
    const Worker& worker = *crew.workers()[index(job.plan.stages[s].workers.front())];
    const Stage& stage = worker.stages().at(StageId{static_cast<int>(s)});
    for (auto& layer : stage.named_tensors()) by_layer.push_back(std::move(layer));
  }
  std::sort(by_layer.begin(), by_layer.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  NamedTensors all;
  for (auto& [layer, tensors] : by_layer) all.insert(all.end(), tensors.begin(), tensors.end());
  return all;
}

Context settings_of(const plan::Plan& plan, const RunOptions& options) {
  Context settings{{"data", options.data},
                   {"optimizer", std::string(name_of(plan.training.optimizer))},
                   {"learning_rate", Json(options.learning_rate).dump()},
                   {"weight_decay", Json(options.weight_decay).dump()},
                   {"shuffle", options.shuffle ? "yes" : "no"},
                   {"drop_last", options.drop_last ? "yes" : "no"},
                   {"evaluate", options.evaluate ? "yes" : "no"}};
  if (options.data == "synthetic") settings["synthetic_samples"] = std::to_string(options.synthetic_samples);
  if (options.scale) settings["scale"] = Json(*options.scale).dump();
  if (options.epochs) settings["epochs"] = std::to_string(*options.epochs);
  if (options.steps) settings["steps"] = std::to_string(*options.steps);
  if (plan.training.optimizer == plan::OptimizerName::sgd) {
    settings["momentum"] = Json(options.momentum).dump();
  } else {
    settings["beta1"] = Json(options.beta1).dump();
    settings["beta2"] = Json(options.beta2).dump();
    settings["epsilon"] = Json(options.epsilon).dump();
  }
  return settings;
}

RunReport make_report(const Job& job, const Crew& crew, Driver& driver) {
  RunReport report;
  report.context = {{"pp", PP_VERSION}, {"libtorch", TORCH_VERSION}};
  report.plan_hash = plan::plan_hash(job.plan);
  report.settings = settings_of(job.plan, job.options);
  report.exit_reason = driver.interrupted() ? "interrupted" : "completed";
  report.seed = job.options.seed;
  for (const UnitRecord& unit : driver.units) report.step_losses.push_back(unit.loss);
  report.epochs = std::move(driver.epochs);
  std::vector<const WorkerRecord*> records;
  for (const auto& worker : crew.workers()) records.push_back(&worker->record());
  add_measurements(report, job.plan, driver.units, records);
  if (job.options.trace) report.trace = make_trace(records);
  return report;
}

[[noreturn]] void rethrow_first(Job& job) {
  const std::exception_ptr error = job.coordinator.error();
  if (error) std::rethrow_exception(error);
  throw Error(ErrorKind::internal, "the workers stopped without an error");
}

}  // namespace

void check(const plan::Plan& plan, const RunOptions& options) { make_setup(plan, options); }

RunReport run(const plan::Plan& plan, const RunOptions& options, Observer& observer,
              const std::function<bool()>& interrupted) {
  Setup setup = make_setup(plan, options);
  for (const std::string& warning : setup.cores.warnings) observer.warning(warning);
  std::optional<AtomicFile> weights_file;
  if (!options.save_weights.empty()) weights_file.emplace(options.save_weights);
  profile::install_memory_meter();
  Job job(plan, options, std::move(setup));
  Crew crew(job);
  Driver driver(job, observer, interrupted);
  try {
    driver.drive();
  } catch (const Stopped&) {
    crew.join();
    rethrow_first(job);
  }
  crew.join();
  if (job.coordinator.error()) rethrow_first(job);
  if (weights_file) {
    write_weights(*weights_file, collect_weights(job, crew));
    weights_file->commit();
  }
  return make_report(job, crew, driver);
}

}  // namespace pp::run
