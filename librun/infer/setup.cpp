#include "librun/infer/setup.h"

#include <algorithm>
#include <utility>

#include "libprofile/core/error.h"
#include "libprofile/core/model/model_traits.h"
#include "libprofile/core/options.h"
#include "libprofile/device/machine.h"
#include "libprofile/device/process.h"
#include "libprofile/model/segment_plan.h"
#include "librun/data/model_data.h"
#include "librun/data/synthetic.h"
#include "librun/options/settings.h"
#include "librun/setup/checks.h"
#include "librun/setup/host_memory.h"
#include "librun/setup/start.h"

namespace pp::run {

namespace {

/// Targets that no layer reads.
std::set<std::string> unread_targets(const ResolvedModel& model) {
  std::set<std::string> unread;
  for (std::size_t i = 0; i < model.graph.targets.size(); ++i) {
    const TensorSource target{TensorSource::Kind::target, static_cast<int>(i), 0};
    const bool read = std::ranges::any_of(model.layers, [&](const ResolvedLayer& layer) {
      return std::ranges::count(layer.sources, target) > 0;
    });
    if (!read) unread.insert(model.graph.targets[i].name);
  }
  return unread;
}

std::optional<Subset> wanted_subset(const InferOptions& options) {
  if (options.subset.empty()) return std::nullopt;
  return parse_enum<Subset>(options.subset, "--subset", ErrorKind::usage);
}

/// Of the input that grows the data have the prompt, or nothing.
void ask_for_prompts(InferData& data, const SequencePlace& place, const InferOptions& options) {
  DataTensor& input = data.model.graph.inputs[place.input];
  if (const int length = options.generation->prompt_length; length > 0) {
    input.type.shape = {length};
    return;
  }
  data.left_out.insert(input.name);
  if (data.model.graph.inputs.size() > 1 || options.data == "synthetic") return;
  refuse(ErrorKind::usage,
         "nothing else is read from data: give --data synthetic, and with --synthetic-samples the number of "
         "sequences");
}

void find_data(InferData& data, const InferOptions& options) {
  data.samples = options.synthetic_samples;
  if (options.data == "synthetic") return;
  data.table = open_set({.model = data.model,
                         .path = options.data,
                         .format = options.data_format,
                         .token_type = options.token_type,
                         .target_column = options.target_column,
                         .left_out = data.left_out},
                        wanted_subset(options));
  data.samples = data.table->samples;
  for (std::size_t i = 0; i < data.model.graph.inputs.size(); ++i) {
    const DataTensor& input = data.model.graph.inputs[i];
    if (!data.left_out.contains(input.name)) input_scale(input, data.table->inputs[i], options.scale);
  }
}

double bytes_of(const InferData& data) {
  if (data.table) return bytes_in_memory(*data.table);
  return static_cast<double>(data.samples) * synthetic_sample_bytes(data.model.graph);
}

Start find_start(const plan::Plan& plan, const InferOptions& options, const ResolvedModel& model) {
  if (options.random_weights != options.initial_weights.empty()) {
    refuse(ErrorKind::usage,
           options.random_weights
               ? "--random-weights takes weights from the seed; leave out --initial-weights, or it"
               : "no weights: give them with --initial-weights, or try the plan without any by "
                 "--random-weights");
  }
  if (options.random_weights) return {};
  const GivenWeights given = find_weights(model, plan.training.dtype, options);
  if (!given.missing.empty())
    refuse(ErrorKind::data, options.initial_weights.string() + ": has no " + list_of(given.missing) +
                                "; give all weights of the model \"" + model.graph.name + "\"");
  Start start;
  start.weights = given.files;
  return start;
}

// What attention keeps stays with a worker, so all passes of a group of sequences must come to the same one.
bool can_run_by_pieces(const plan::Plan& plan, const InferOptions& options, const ResolvedModel& model,
                       const SequencePlace& place) {
  const auto is_single = [](const plan::Stage& stage) { return stage.workers.size() == 1; };
  return options.generation->cache && model.graph.inputs.size() == 1 &&
         std::ranges::all_of(plan.stages, is_single) && runs_by_pieces(model, place.length);
}

int ceil_of(std::int64_t number, std::int64_t parts) { return static_cast<int>((number + parts - 1) / parts); }

// A generation has a pass for each worker under way only where there are as many groups of sequences.
int rows_of_pass(const plan::Plan& plan, const InferOptions& options, std::int64_t samples) {
  if (options.micro_batch > 0) return options.micro_batch;
  const int planned = ceil_of(plan.training.mini_batch, plan.training.micro_batches);
  return options.generation ? std::min(planned, ceil_of(samples, std::ssize(plan.workers))) : planned;
}

}  // namespace

ResolvedModel without_loss(ResolvedModel model) {
  model.graph.loss.reset();
  model.loss_sources.clear();
  return model;
}

InferSetup make_infer_setup(const plan::Plan& plan, const InferOptions& options) {
  check_execution(options);
  check_ranges(infer_options(), options);
  plan::check_plan(plan);
  InferSetup infer;
  infer.data.model = resolve(plan.model);
  Setup& setup = infer.setup;
  setup.model = without_loss(infer.data.model);
  setup.devices = devices_of_workers(plan, setup.placement, profile::machine_devices());
  check_runnable(setup.model);
  model::check_bindable(setup.model);
  check_autocast(plan, options);
  setup.cores = cores_of_workers(setup.devices, setup.placement);
  infer.data.left_out = unread_targets(setup.model);
  if (options.generation) {
    infer.sequence = find_sequence(setup.model, options.generation->sequence_input);
    check_generation(setup.model, *infer.sequence, *options.generation);
    if (options.generation->text && infer.sequence->tokens > 256) {
      refuse(ErrorKind::usage, "--text shows tokens as bytes, of which there are 256; the model has " +
                                   std::to_string(infer.sequence->tokens) +
                                   " tokens: read the output with its tokenizer");
    }
    ask_for_prompts(infer.data, *infer.sequence, options);
    infer.by_pieces = can_run_by_pieces(plan, options, setup.model, *infer.sequence);
  }
  find_data(infer.data, options);
  setup.start = find_start(plan, options, setup.model);
  check_host_memory(least_host_memory(plan, setup.model, setup.devices, bytes_of(infer.data), /*copies=*/1),
                    profile::available_memory());
  infer.micro_batch = rows_of_pass(plan, options, infer.data.samples);
  return infer;
}

std::unique_ptr<const Dataset> load(InferData data, const plan::Plan& plan, const InferOptions& options) {
  const DType dtype = plan.training.dtype;
  if (data.table) return open_records(data.model, std::move(*data.table), {dtype, options.scale});
  return std::make_unique<MemoryDataset>(
      make_synthetic(data.model, data.samples, options.seed, Subset::test, dtype));
}

}  // namespace pp::run
