#include "librun/run.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "libprofile/core/error.h"
#include "libprofile/measure/memory_meter.h"
#include "libprofile/measure/profiler.h"
#include "librun/report/build.h"
#include "librun/transport/watchdog.h"
#include "librun/worker/driver.h"
#include "librun/worker/saver.h"
#include "librun/worker/start.h"

namespace pp::run {

namespace {

RunStart start_of(const plan::Plan& plan, const RunOptions& options, const Setup& setup) {
  return {plan::plan_hash(plan), settings_of(plan, options, setup.length), options.seed,
          setup.start.position.step, setup.length.total};
}

RunReport make_report(const Job& job, const Crew& crew, const Driver& driver, const Saver& saver) {
  RunReport report;
  report.context = profile::measurement_context();
  report.context["pp"] = PP_VERSION;
  report.plan = job.plan;
  report.plan_hash = plan::plan_hash(job.plan);
  report.settings = settings_of(job.plan, job.options, job.setup.length);
  report.checkpoints = saver.report();
  if (const Start& start = job.setup.start; !start.resumed.empty())
    report.resumed = ResumedFrom{start.resumed.string(), start.position.step};
  report.exit_reason = driver.stopped_by_nan() ? "not_finite"
                       : driver.interrupted()  ? "interrupted"
                                               : "completed";
  report.seed = job.options.seed;
  for (const StepRecord& step : driver.steps()) {
    report.step_losses.push_back(step.loss);
    report.skipped_steps += step.skipped ? 1 : 0;
  }
  report.epochs = driver.epochs();
  std::vector<const WorkerRecord*> records;
  for (const auto& worker : crew.workers()) records.push_back(&worker->record());
  report.history = driver.history();
  add_measurements(report, job.options.accumulate, driver.steps(), records);
  if (job.options.trace) report.trace = make_trace(records);
  return report;
}

constexpr auto kLatest =
    "weight policy latest: backwards run on other weights than their forwards, so the updates are the gradient "
    "of "
    "no function; to train, plan with --weight-policy stash";

// A job with the workers that do it.
struct Work {
  Work(const plan::Plan& plan, const RunOptions& options, Setup setup)
      : saver(options, setup.start), job(plan, options, std::move(setup)), crew(job) {
    job.initial.reset();  // the workers have it
    if (!job.takes_snapshots()) return;
    writer.emplace(job.coordinator, job.snapshots, [this](const Snapshot& s) { saver.save(job, s); });
  }
  Saver saver;
  Job job;
  Crew crew;
  std::optional<SnapshotWriter> writer;
};

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "unknown error";
  }
}

// With lost workers; what they may still touch lives as long as the process.
std::vector<std::unique_ptr<Work>>& left_behind() {
  static auto* const works = new std::vector<std::unique_ptr<Work>>;
  return *works;
}

[[noreturn]] void fail(std::unique_ptr<Work> work, const std::exception_ptr& error) {
  constexpr Seconds kMostGrace{5};
  work->job.coordinator.stop(error);
  const Seconds grace = std::min(work->job.options.stall_timeout, kMostGrace);
  const std::optional<WorkerId> lost = work->crew.join_within(grace);
  if (!lost) std::rethrow_exception(error);
  const std::string state = work->job.coordinator.state_of(*lost);
  left_behind().push_back(std::move(work));
  throw Error(ErrorKind::run,
              text_of(error) + "\n  does not end, so it is left behind after " + to_text(grace) + ": " + state);
}

void train(std::unique_ptr<Work>& work, Driver& driver) {
  std::exception_ptr error;
  try {
    const Watchdog watchdog(work->job.coordinator, work->job.options.stall_timeout);
    driver.drive();
    work->crew.join();
    error = work->job.coordinator.error();
  } catch (const Stopped&) {
    error = work->job.coordinator.error();
    if (!error) error = std::make_exception_ptr(Error(ErrorKind::internal, "stopped without an error"));
  } catch (...) {
    error = std::current_exception();
  }
  if (error) fail(std::move(work), error);
}

}  // namespace

void check(const plan::Plan& plan, const RunOptions& options) { make_setup(plan, options); }

int runs_left_behind() { return static_cast<int>(left_behind().size()); }

RunReport run(const plan::Plan& plan, const RunOptions& options, Observer& observer,
              const std::function<bool()>& interrupted) {
  Setup setup = make_setup(plan, options);
  for (const auto* const warnings : {&setup.cores.warnings, &setup.start.warnings}) {
    for (const std::string& warning : *warnings) observer.warning(warning);
  }
  if (plan.schedule.weight_policy == plan::WeightPolicy::latest) observer.warning(kLatest);
  observer.start(start_of(plan, options, setup));
  profile::install_memory_meter();
  auto work = std::make_unique<Work>(plan, options, std::move(setup));
  Driver driver(work->job, observer, interrupted);
  train(work, driver);
  return make_report(work->job, work->crew, driver, work->saver);
}

}  // namespace pp::run
