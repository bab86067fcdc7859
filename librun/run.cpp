#include "librun/run.h"

#include <torch/version.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "libprofile/core/error.h"
#include "libprofile/core/file.h"
#include "libprofile/measure/memory_meter.h"
#include "librun/checkpoint/weights.h"
#include "librun/report/build.h"
#include "librun/transport/watchdog.h"
#include "librun/worker/driver.h"
#include "librun/worker/optimizer.h"

namespace pp::run {

namespace {

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

Settings settings_of(const plan::Plan& plan, const RunOptions& options) {
  Settings settings{{"data", options.data},
                    {"optimizer", std::string(name_of(plan.training.optimizer))},
                    {"learning_rate", options.learning_rate},
                    {"lr_schedule", options.lr_schedule},
                    {"weight_decay", options.weight_decay},
                    {"shuffle", options.shuffle},
                    {"drop_last", options.drop_last},
                    {"evaluate", options.evaluate}};
  const auto whole = [&](const char* name, std::int64_t value) { settings[name] = value; };
  if (options.warmup_steps > 0) whole("warmup_steps", options.warmup_steps);
  if (options.lr_schedule == "step") {
    whole("lr_step_size", options.lr_step_size);
    settings["lr_factor"] = options.lr_factor;
  }
  if (options.lr_schedule == "cosine") settings["lr_min"] = options.lr_min;
  if (options.data == "synthetic") whole("synthetic_samples", options.synthetic_samples);
  if (options.clip_norm) settings["clip_norm"] = *options.clip_norm;
  if (options.scale) settings["scale"] = *options.scale;
  if (options.epochs) whole("epochs", *options.epochs);
  if (options.steps) whole("steps", *options.steps);
  for (const auto& [name, value] : optimizer_settings(plan.training.optimizer, options))
    settings[std::string(name)] = value;
  if (options.nesterov) settings["nesterov"] = true;
  return settings;
}

RunStart start_of(const plan::Plan& plan, const RunOptions& options, const Setup& setup) {
  return {plan::plan_hash(plan), settings_of(plan, options), options.seed, setup.length.total};
}

RunReport make_report(const Job& job, const Crew& crew, const Driver& driver) {
  RunReport report;
  report.context = {{"pp", PP_VERSION}, {"libtorch", TORCH_VERSION}};
  report.plan_hash = plan::plan_hash(job.plan);
  report.settings = settings_of(job.plan, job.options);
  report.exit_reason = driver.interrupted() ? "interrupted" : "completed";
  report.seed = job.options.seed;
  for (const StepRecord& step : driver.steps()) report.step_losses.push_back(step.loss);
  report.epochs = driver.epochs();
  std::vector<const WorkerRecord*> records;
  for (const auto& worker : crew.workers()) records.push_back(&worker->record());
  add_measurements(report, job.plan, driver.steps(), records);
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
      : job(plan, options, std::move(setup)), crew(job) {}
  Job job;
  Crew crew;
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
  for (const std::string& warning : setup.cores.warnings) observer.warning(warning);
  if (plan.schedule.weight_policy == plan::WeightPolicy::latest) observer.warning(kLatest);
  std::optional<AtomicFile> weights_file;
  if (!options.save_weights.empty()) weights_file.emplace(options.save_weights);
  observer.start(start_of(plan, options, setup));
  profile::install_memory_meter();
  auto work = std::make_unique<Work>(plan, options, std::move(setup));
  Driver driver(work->job, observer, interrupted);
  train(work, driver);
  if (weights_file) {
    write_weights(*weights_file, collect_weights(work->job, work->crew));
    weights_file->commit();
  }
  return make_report(work->job, work->crew, driver);
}

}  // namespace pp::run
