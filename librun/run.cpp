#include "librun/run.h"

#include <torch/version.h>

#include <algorithm>
#include <utility>

#include "libprofile/core/error.h"
#include "libprofile/core/file.h"
#include "libprofile/measure/memory_meter.h"
#include "librun/checkpoint/weights.h"
#include "librun/report/build.h"
#include "librun/worker/driver.h"

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

RunReport make_report(const Job& job, const Crew& crew, const Driver& driver) {
  RunReport report;
  report.context = {{"pp", PP_VERSION}, {"libtorch", TORCH_VERSION}};
  report.plan_hash = plan::plan_hash(job.plan);
  report.settings = settings_of(job.plan, job.options);
  report.exit_reason = driver.interrupted() ? "interrupted" : "completed";
  report.seed = job.options.seed;
  for (const UnitRecord& unit : driver.units()) report.step_losses.push_back(unit.loss);
  report.epochs = driver.epochs();
  std::vector<const WorkerRecord*> records;
  for (const auto& worker : crew.workers()) records.push_back(&worker->record());
  add_measurements(report, job.plan, driver.units(), records);
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
