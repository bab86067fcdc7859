#include "librun/run.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "libprofile/core/error.h"
#include "libprofile/device/cuda_devices.h"
#include "libprofile/device/memory_meter.h"
#include "libprofile/device/process.h"
#include "librun/drive/agreement.h"
#include "librun/drive/driver.h"
#include "librun/drive/work.h"
#include "librun/report/build.h"
#include "librun/setup/checks.h"
#include "librun/setup/make_setup.h"
#include "librun/setup/start.h"

namespace pp::run {

namespace {

RunStart start_of(const plan::Plan& plan, const RunOptions& options, const Setup& setup) {
  return {plan::plan_hash(plan), settings_of(plan, options, setup.length), options.seed,
          setup.start.position.step, setup.length.total};
}

std::string exit_reason(const Driver& driver, const Job& job) {
  if (job.checkpointer && !job.checkpointer->failures().empty()) return "not_written";
  if (driver.stopped_by_nan()) return "not_finite";
  return driver.interrupted() ? "interrupted" : driver.stopped_early() ? "stopped_early" : "completed";
}

// In the report's context and in the trace, where there are other clocks.
void add_clocks(Context& context, const RankClocks& clocks) {
  std::string text;
  for (const auto& [rank, relation] : clocks) text += (text.empty() ? "" : "; ") + clock_text(rank, relation);
  if (!text.empty()) context["clocks"] = text;
}

// What the devices gave to this process, beside what its workers had in tensors.
void add_allocators(Context& context, const Job& job) {
  std::set<int> devices;
  for (const WorkerId id : job.workers_here()) {
    if (const Device& device = job.setup.devices[index(id)]; device.kind == DeviceKind::cuda)
      devices.insert(device.index);
  }
  for (const int device : devices) {
    const profile::AllocatorPeak peak = profile::cuda_allocator_peak(device);
    const std::string name = "cuda:" + std::to_string(device);
    context[name + " allocator_peak_bytes"] = std::to_string(peak.blocks.value);
    context[name + " reserved_peak_bytes"] = std::to_string(peak.reserved.value);
  }
}

ReplicasReport replicas_report(const ServerFigures& figures, std::int64_t steps) {
  const double updates = static_cast<double>(std::max<std::int64_t>(figures.updates, 1));
  const auto per_step = [&](Bytes all) { return Bytes(all.value / std::max<std::int64_t>(steps, 1)); };
  return {static_cast<double>(figures.stale) / updates, figures.largest_stale, figures.largest_lead,
          per_step(figures.pushed), per_step(figures.fetched)};
}

RunReport make_report(const Job& job, const Crew& crew, const FromOthers& others, const Driver& driver) {
  RunReport report;
  report.context = profile::measurement_context();
  report.context["pp"] = PP_VERSION;
  add_clocks(report.context, others.clocks);
  add_allocators(report.context, job);
  report.plan = job.plan;
  report.plan_hash = plan::plan_hash(job.plan);
  report.settings = settings_of(job.plan, job.options, job.setup.length);
  if (job.checkpointer) report.checkpoints = job.checkpointer->report();
  if (report.checkpoints) report.checkpoints->choice = driver.checkpoint_choice();
  if (const Start& start = job.setup.start; !start.resumed.empty())
    report.resumed = ResumedFrom{start.resumed.string(), start.position.step};
  report.exit_reason = exit_reason(driver, job);
  report.seed = job.options.seed;
  report.steps = driver.step_count();
  report.skipped_steps = driver.skipped_steps();
  for (const StepRecord& step : driver.steps()) report.step_losses.push_back(step.loss);
  report.epochs = driver.epochs();
  report.evaluations = driver.evaluations();
  if (const std::optional<Evaluated>& evaluated = driver.evaluated();
      evaluated && evaluated->best_step > 0 && job.options.acts_on_evaluations()) {
    report.best = BestReport{evaluated->best_step, evaluated->best_loss, evaluated->since_best, ""};
    if (job.options.keep_best)
      report.best->checkpoint = place_of_checkpoint(job.options.checkpoint, evaluated->best_step).string();
  }
  std::vector<const WorkerRecord*> records(job.plan.workers.size());
  for (const auto& worker : crew.workers()) records[index(worker->id())] = &worker->record();
  for (const auto& [worker, record] : others.records) records[index(worker)] = &record;
  if (job.served())
    report.replicas =
        replicas_report(records[index(job.plan.stages.front().workers.front())]->server, report.steps);
  report.history = driver.history();
  report.slow_devices = driver.slow_devices();
  add_measurements(report, driver.steps(), records);
  if (job.setup.clocked) {
    report.frames = frames_report(records, static_cast<int>(job.plan.stages.size()));
    report.frames->period = report.step;
  }
  if (job.options.trace) report.trace = make_trace(records, report);
  return report;
}

constexpr auto kLatest =
    "weight policy latest: backwards run on other weights than their forwards, so the updates are the gradient "
    "of "
    "no function; to train, plan with --weight-policy stash";

void tell_start(const plan::Plan& plan, const RunOptions& options, const Setup& setup, Observer& observer) {
  for (const auto* const warnings : {&setup.cores.warnings, &setup.start.warnings}) {
    for (const std::string& warning : *warnings) observer.warning(warning);
  }
  if (plan.schedule.weight_policy == plan::WeightPolicy::latest && !setup.clocked) observer.warning(kLatest);
  if (const std::string missing = missing_ranks(plan); setup.placement.alone() && !missing.empty())
    observer.warning(missing);
  observer.start(start_of(plan, options, setup));
}

/// The process that drives: alone, or as rank 0.
RunReport lead(std::unique_ptr<Work> work, Observer& observer, const std::function<bool()>& interrupted) {
  const Work& all = *work;
  const std::function<bool()> ends = [&] { return interrupted() || (all.link && all.link->interrupted()); };
  Driver driver(work->job, observer, ends);
  FromOthers others;
  perform(work, [&] {
    driver.drive();
    if (work->link) others = work->link->await_others();
  });
  return make_report(work->job, work->crew, others, driver);
}

void follow(std::unique_ptr<Work> work, const std::function<bool()>& interrupted) {
  perform(work, [&] {
    work->link->follow(interrupted);
    work->crew.join();
    if (work->job.coordinator.stopped()) throw Stopped{};
    std::vector<std::pair<WorkerId, WorkerRecord*>> records;
    for (const auto& worker : work->crew.workers()) records.emplace_back(worker->id(), &worker->record());
    work->link->leave(records);
  });
}

}  // namespace

std::vector<std::string> check(const plan::Plan& plan, const RunOptions& options) {
  return make_setup(plan, as_planned(options, plan)).start.warnings;
}

std::vector<std::string> programs(const plan::Plan& plan, const RunOptions& given) {
  const RunOptions options = as_planned(given, plan);
  const Job job(plan, options, make_setup(plan, options));
  std::vector<std::string> all;
  for (const plan::Stream& stream : job.streams)
    all.push_back(listing(stream, lower(stream, lowering_of(job, Direction::activation))));
  return all;
}

RunReport run(const plan::Plan& plan, const RunOptions& given, Observer& observer,
              const std::function<bool()>& interrupted) {
  const RunOptions options = as_planned(given, plan);
  Setup setup = make_setup(plan, options);
  tell_start(plan, options, setup, observer);
  profile::install_memory_meter();
  auto files = std::make_unique<SavedFiles>(options, plan.training.dtype, setup);
  return lead(std::make_unique<Work>(plan, options, std::move(setup), std::move(files)), observer, interrupted);
}

RunReport run_together(Peers& peers, const plan::Plan& plan, const RunOptions& given, Observer& observer,
                       const std::function<bool()>& interrupted) {
  if (peers.size() == 1) return run(plan, given, observer, interrupted);
  const RunOptions options = as_planned(given, plan);
  Mailbox mailbox(peers, 10 * options.stall_timeout);
  std::unique_ptr<SavedFiles> files;
  Setup setup = set_up(mailbox, plan, options, [&](const Setup& mine) {
    files = std::make_unique<SavedFiles>(options, plan.training.dtype, mine);
  });
  profile::install_memory_meter();
  if (peers.rank() == 0) {
    observer.information(placement_text(plan, setup.placement));
    tell_start(plan, options, setup, observer);
  }
  return as_rank(peers.rank(), [&]() -> RunReport {
    std::unique_ptr<Work> work;
    begin(mailbox,
          [&] { work = std::make_unique<Work>(plan, options, std::move(setup), std::move(files), &mailbox); });
    if (peers.rank() == 0) return lead(std::move(work), observer, interrupted);
    follow(std::move(work), interrupted);
    return {};
  });
}

void refuse_together(Peers& peers, const Error& why) {
  if (peers.size() == 1) throw why;
  Mailbox mailbox(peers);
  refuse_to_meet(mailbox, why);
}

int runs_left_behind() { return works_left_behind(); }

}  // namespace pp::run
