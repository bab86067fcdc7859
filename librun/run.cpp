#include "librun/run.h"

#include <memory>
#include <utility>
#include <vector>

#include "libprofile/core/error.h"
#include "libprofile/device/memory_meter.h"
#include "libprofile/device/process.h"
#include "librun/drive/driver.h"
#include "librun/drive/work.h"
#include "librun/report/build.h"
#include "librun/setup/start.h"

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

}  // namespace

void check(const plan::Plan& plan, const RunOptions& options) { make_setup(plan, options); }

RunReport run(const plan::Plan& plan, const RunOptions& options, Observer& observer,
              const std::function<bool()>& interrupted) {
  Setup setup = make_setup(plan, options);
  for (const auto* const warnings : {&setup.cores.warnings, &setup.start.warnings}) {
    for (const std::string& warning : *warnings) observer.warning(warning);
  }
  if (plan.schedule.weight_policy == plan::WeightPolicy::latest) observer.warning(kLatest);
  observer.start(start_of(plan, options, setup));
  profile::install_memory_meter();
  const auto saver = std::make_shared<Saver>(options, setup.start);
  auto work = std::make_unique<Work>(plan, options, std::move(setup), saver);
  Driver driver(work->job, observer, interrupted);
  perform(work, [&] { driver.drive(); });
  return make_report(work->job, work->crew, driver, *saver);
}

}  // namespace pp::run
