#include "librun/infer.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "libprofile/device/memory_meter.h"
#include "libprofile/device/process.h"
#include "librun/checkpoint/weights.h"
#include "librun/drive/work.h"
#include "librun/infer/driver.h"
#include "librun/infer/generation.h"
#include "librun/infer/output_file.h"
#include "librun/infer/setup.h"
#include "librun/report/build.h"
#include "librun/setup/checks.h"

namespace pp::run {

namespace {

void add_workers(InferReport& report, const Crew& crew) {
  std::vector<const WorkerRecord*> records;
  for (const auto& worker : crew.workers()) {
    const WorkerRecord& record = worker->record();
    records.push_back(&record);
    const Seconds busy = record.busy.empty() ? Seconds(0) : record.busy.front();
    report.workers.push_back({WorkerId{static_cast<int>(report.workers.size())}, busy,
                              fraction_idle(busy, 1, report.elapsed), record.peak});
  }
  report.op_times = op_times(report.plan, records);
  const plan::Training& planned = report.plan.training;
  if (report.micro_batch * planned.micro_batches == planned.mini_batch) return;
  for (OpTime& time : report.op_times) time.predicted = Seconds(0);
}

/// Rows of tokens as far as their lengths go, a byte each.
std::vector<std::string> texts_of(const std::filesystem::path& outputs, const std::string& name) {
  const NamedTensors tensors = read_weights(outputs);
  const auto find = [&](const std::string& wanted) {
    return std::ranges::find(tensors, wanted, &NamedTensors::value_type::first)->second;
  };
  const at::Tensor rows = find(name), lengths = find(name + ".length");
  std::vector<std::string> texts;
  for (std::int64_t s = 0; s < rows.size(0); ++s) {
    std::string& text = texts.emplace_back();
    const auto* tokens = rows.const_data_ptr<std::int64_t>() + s * rows.size(1);
    for (std::int64_t i = 0; i < lengths.const_data_ptr<std::int64_t>()[s]; ++i)
      text.push_back(static_cast<char>(static_cast<unsigned char>(tokens[i])));
  }
  return texts;
}

InferReport make_report(const Job& job, const Crew& crew, const InferOptions& options,
                        const InferDriver& driver) {
  InferReport report;
  report.context = profile::measurement_context();
  report.context["pp"] = PP_VERSION;
  report.plan = job.plan;
  report.plan_hash = plan::plan_hash(job.plan);
  report.settings = settings_of(options);
  report.seed = options.seed;
  (options.generation ? report.tokens.emplace() : report.samples) = job.inference->done();
  if (options.generation) report.samples = job.test->samples();
  report.micro_batch = job.test_shape.mini_batch;
  driver.add_to(report);
  add_workers(report, crew);
  return report;
}

ForwardOnly outputs_of(const plan::Plan& plan, const InferOptions& options, InferSetup& infer) {
  EpochShape shape{.samples = infer.data.samples, .mini_batch = infer.micro_batch};
  shape.count = (shape.samples + shape.mini_batch - 1) / shape.mini_batch;
  auto file = std::make_unique<OutputFile>(options.outputs, infer.setup.model, plan.training.dtype, shape);
  return {load(std::move(infer.data), plan, options), shape, std::move(file)};
}

ForwardOnly generation_of(const plan::Plan& plan, const InferOptions& options, InferSetup& infer) {
  const SequencePlace& place = *infer.sequence;
  const std::int64_t samples = infer.data.samples;
  auto data = load(std::move(infer.data), plan, options);
  at::Tensor prompts;
  if (options.generation->prompt_length > 0) {
    prompts = data->rows({TensorSource::Kind::input, static_cast<int>(place.input), 0},
                         epoch_order(samples, /*seed=*/0, /*epoch=*/0, /*shuffle=*/false));
  }
  auto generation = std::make_unique<Generation>(
      options.outputs, infer.setup.model.graph.inputs[place.input].name,
      Sequences(place, *options.generation, samples, prompts), place, options, infer.micro_batch,
      infer.by_pieces ? Generation::By::pieces : Generation::By::whole_sequences);
  auto reading = generation->reading(std::move(data));
  const EpochShape shape = generation->shape();
  return {std::move(reading), shape, std::move(generation)};
}

}  // namespace

InferReport infer(const plan::Plan& plan, const InferOptions& given, InferObserver& observer,
                  const std::function<bool()>& interrupted) {
  const InferOptions options = as_planned(given, plan);
  InferSetup infer = make_infer_setup(plan, options);
  for (const std::string& warning : infer.setup.cores.warnings) observer.warning(warning);
  if (const std::string other = other_autocast(plan, options); !other.empty()) observer.warning(other);
  const std::string sequence_name =
      infer.sequence ? infer.setup.model.graph.inputs[infer.sequence->input].name : std::string();
  profile::install_memory_meter();
  ForwardOnly forward_only =
      infer.sequence ? generation_of(plan, options, infer) : outputs_of(plan, options, infer);
  RunOptions run;
  static_cast<ExecutionOptions&>(run) = options;
  auto work =
      std::make_unique<Work>(plan, run, std::move(infer.setup), nullptr, nullptr, std::move(forward_only));
  InferDriver driver(work->job, observer, interrupted);
  perform(work, [&] { driver.drive(); });
  if (!driver.interrupted()) work->job.inference->finish();
  InferReport report = make_report(work->job, work->crew, options, driver);
  if (options.generation && options.generation->text && !driver.interrupted())
    report.texts = texts_of(options.outputs, sequence_name);
  return report;
}

}  // namespace pp::run
