#include "librun/setup/start.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <tuple>
#include <utility>

#include "libprofile/core/error.h"
#include "libprofile/core/options.h"
#include "libprofile/core/text.h"
#include "librun/checkpoint/model_tensors.h"
#include "librun/checkpoint/weight_files.h"

namespace pp::run {

namespace {

namespace fs = std::filesystem;

void check_position(const fs::path& folder, Step step, const Setup& setup) {
  if (step > setup.length.total) {
    refuse(ErrorKind::usage, folder.string() + ": is of step " + std::to_string(step) +
                                 ", the training ends with step " + std::to_string(setup.length.total) +
                                 "; --steps and --epochs count from the beginning of the training, give more");
  }
  if (step % setup.round != 0) {
    refuse(ErrorKind::data, folder.string() + ": step " + std::to_string(step) + " is not a multiple of the " +
                                std::to_string(setup.round) +
                                " mini-batches that this plan's replicas take turns in; resume a checkpoint "
                                "that is, or plan other replicas");
  }
}

Start resume(const plan::Plan& plan, const RunOptions& options, const Setup& setup,
             const FoundCheckpoint& found) {
  const std::string folder = found.folder.string();
  Start start{.position = found.manifest.position, .read = found.read, .resumed = found.folder};
  for (const std::string& reason : found.skipped) start.warnings.push_back("skipped " + reason);
  const Manifest now = describe(plan, options, setup, start.position);
  const std::vector<ModelTensor> wanted = model_tensors(setup.model, plan.training.dtype);
  start.weights = files_of(found, kWeights);
  const std::vector<fs::path> optimizer = files_of(found, kOptimizer);
  std::vector<std::string> slots;
  for (const OptimizerSlotRow& slot : slots_of(plan.training.optimizer, options.optimizer))
    slots.emplace_back(slot.name);
  const bool mixed = plan.training.precision == plan::Precision::mixed;
  if (mixed) slots.emplace_back(kMaster);
  const SafetensorsFile weights(start.weights, start.read), state(optimizer, start.read);
  with_context(folder, [&] {
    check_identity(found.manifest.identity, now.identity);
    const std::vector<std::string> missing = missing_weights(weights, wanted, /*ignore_unknown=*/false);
    if (!missing.empty()) refuse(ErrorKind::data, "has no " + list_of(missing));
    const bool there =
        has_optimizer_state(state, mixed ? model_tensors(setup.model, DType::float32) : wanted, slots);
    if (there) start.optimizer = optimizer;
  });
  check_position(found.folder, start.position.step, setup);
  if (const std::vector<std::string> other = differences(found.manifest, now); !other.empty())
    start.warnings.push_back("resumed with " + list_of(other) +
                             ": the training is no longer the one that was begun, bit for bit");
  return start;
}

std::set<std::string> frozen_parameters(const ResolvedModel& model) {
  std::set<std::string> names;
  for (int layer = 0; layer < model.layer_count(); ++layer) {
    const ResolvedLayer& resolved = model.layers[static_cast<std::size_t>(layer)];
    for (std::size_t i = 0; i < resolved.parameters.size(); ++i)
      if (resolved.frozen[i]) names.insert(parameter_name(model, resolved.weights_layer, i));
  }
  return names;
}

constexpr auto kGiveThem =
    "; give them with --initial-weights, or say --random-weights if drawn ones are meant";

void require_weights(const ResolvedModel& model, const RunOptions& options) {
  if (options.random_weights) return;
  const std::set<std::string> frozen = frozen_parameters(model);
  std::string why;
  if (!model.graph.weights.empty())
    why = "model \"" + model.graph.name + "\" was imported with its own, in " + model.graph.weights;
  else if (!frozen.empty())
    why = "frozen parameters would stay as they are drawn (" + list_of({frozen.begin(), frozen.end()}) + ")";
  if (!why.empty()) refuse(ErrorKind::usage, "no weights: " + why + kGiveThem);
}

Start take_weights(const plan::Plan& plan, const RunOptions& options, const Setup& setup) {
  const GivenWeights given = find_weights(setup.model, plan.training.dtype, options);
  const std::set<std::string> frozen = frozen_parameters(setup.model);
  std::vector<std::string> lost;
  std::ranges::copy_if(given.missing, std::back_inserter(lost),
                       [&](const std::string& name) { return frozen.contains(name); });
  if (!lost.empty() && !options.random_weights) {
    refuse(ErrorKind::data, options.initial_weights.string() +
                                ": frozen parameters are not in it and would stay as they are drawn (" +
                                list_of(lost) + ")" + kGiveThem);
  }
  Start start;
  start.weights = given.files;
  if (!given.missing.empty())
    start.warnings.push_back(counted(std::ssize(given.missing), "tensor") + " not in " +
                             options.initial_weights.string() +
                             " and drawn from the seed: " + list_of(given.missing));
  return start;
}

// The names of parameters and buffers of calls: how they should start is not known.
std::vector<std::string> guessed_starts(const ResolvedModel& model) {
  std::vector<std::string> names;
  const auto add = [&](int layer, const std::vector<int>& indices, const auto& name) {
    for (const int index : indices) names.push_back(name(model, layer, static_cast<std::size_t>(index)));
  };
  for (int layer = 0; layer < model.layer_count(); ++layer) {
    const Layer& spec = model.graph.layers[static_cast<std::size_t>(layer)];
    const ResolvedLayer& resolved = model.layers[static_cast<std::size_t>(layer)];
    for (std::size_t i = 0; spec.call && i < resolved.parameters.size(); ++i)
      names.push_back(parameter_name(model, layer, i));
    for (std::size_t i = 0; spec.call && i < resolved.buffers.size(); ++i)
      names.push_back(buffer_name(model, layer, i));
    for (std::size_t n = 0; n < resolved.nodes.size(); ++n) {
      if (!spec.nodes[n].call) continue;
      add(layer, resolved.nodes[n].parameters, parameter_name);
      add(layer, resolved.nodes[n].buffers, buffer_name);
    }
  }
  return names;
}

// What has been imported mostly has its weights in a file beside it.
void warn_of_unknown_starts(const ResolvedModel& model, Start& start) {
  const std::vector<std::string> guessed = guessed_starts(model);
  if (guessed.empty()) return;
  start.warnings.push_back(counted(std::ssize(guessed), "tensor") +
                           " of calls of LibTorch, whose initial values are not known, start as a guess (" +
                           list_of(guessed) + "); give the model's weights with --initial-weights");
}

}  // namespace

std::string list_of(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(kMost, names.size()); ++i) text += (i > 0 ? ", " : "") + names[i];
  return names.size() > kMost ? text + ", ..." : text;
}

bool goes_on_from_own(const RunOptions& options) {
  const auto place = [](const fs::path& path) {
    std::error_code ignored;
    return fs::weakly_canonical(fs::absolute(path / ".", ignored), ignored);
  };
  return !options.checkpoint.empty() && place(options.resume) == place(options.checkpoint);
}

// From its own folder a job goes on as soon as there is something to go on from.
bool resumes(const RunOptions& options) {
  if (options.resume.empty()) return false;
  if (!goes_on_from_own(options)) return true;
  return has_checkpoints(options.resume);
}

std::vector<Resumable> resumables(const RunOptions& options) {
  std::vector<Resumable> all;
  for (const fs::path& path : checkpoints_of(options.resume))
    all.push_back({step_of_checkpoint(path), path == options.resume ? "" : path.filename().string()});
  return all;
}

FoundCheckpoint find_resumed(const RunOptions& options, std::vector<Resumable> all,
                             const CheckpointReader& reader) {
  std::ranges::sort(all, [](const Resumable& a, const Resumable& b) {
    return std::tuple(-a.step, a.name) < std::tuple(-b.step, b.name);
  });
  const auto same = std::ranges::unique(all);
  all.erase(same.begin(), same.end());
  std::vector<fs::path> paths;
  for (const Resumable& one : all)
    paths.push_back(one.name.empty() ? options.resume : options.resume / one.name);
  return find_checkpoint(paths, options.resume, reader);
}

GivenWeights find_weights(const ResolvedModel& model, DType dtype, const ExecutionOptions& options) {
  const fs::path& path = options.initial_weights;
  GivenWeights given{.files = weight_files(path), .missing = {}};
  const std::vector<ModelTensor> wanted = model_tensors(model, dtype);
  const SafetensorsFile file(given.files);
  with_context(given.files.size() == 1 ? given.files[0].string() : path.string(), [&] {
    given.missing = missing_weights(file, wanted, options.ignore_unknown_weights);
    if (given.missing.size() == wanted.size() && !wanted.empty())
      refuse(ErrorKind::data, "has none of the model's tensors (" + list_of(given.missing) + ")");
  });
  return given;
}

Settings settings_of(const plan::Plan& plan, const RunOptions& options, const Length& length) {
  RunOptions told = options;
  told.accumulate = length.epoch.accumulate;
  if (plan.schedule.weight_policy == plan::WeightPolicy::ssp && !told.staleness)
    told.staleness = kDefaultStaleness;
  if (!told.checkpoint.empty() && !told.checkpoint_steps) told.checkpoint_steps = length.epoch.steps();
  Settings settings{{"optimizer", std::string(name_of(plan.training.optimizer))}};
  add_settings(execution_options(), told, settings);
  add_settings(training_options(), told, settings);
  if (told.lr_schedule == "cosine") settings["lr_steps"] = length.total;
  const OptimizerSettings optimizer = settings_of(plan.training.optimizer, options.optimizer);
  for (const OptimizerSetting& setting : row_of(plan.training.optimizer).settings) {
    const double value = *optimizer.find(setting.name)->second;
    if (setting.range != OptimizerSetting::Range::flag) {
      settings[std::string(setting.name)] = value;
    } else if (value != 0) {
      settings[std::string(setting.name)] = true;
    }
  }
  return settings;
}

Manifest describe(const plan::Plan& plan, const RunOptions& options, const Setup& setup,
                  const Position& position) {
  Manifest manifest;
  manifest.position = position;
  manifest.identity = {.model_hash = model_hash(plan.model),
                       .dtype = std::string(name_of(plan.training.dtype)),
                       .optimizer = std::string(name_of(plan.training.optimizer)),
                       .samples = setup.length.epoch.samples,
                       .mini_batch = std::int64_t{plan.training.mini_batch} * setup.length.epoch.accumulate,
                       .steps_per_epoch = setup.length.epoch.steps()};
  manifest.seed = options.seed;
  manifest.micro_batches = std::int64_t{plan.training.micro_batches} * setup.length.epoch.accumulate;
  manifest.plan_hash = plan::plan_hash(plan);
  manifest.kernels = name_of_kernels(plan.training.kernels);
  manifest.settings = settings_of(plan, options, setup.length);
  return manifest;
}

Start find_start(const plan::Plan& plan, const RunOptions& options, const Setup& setup,
                 const std::optional<FoundCheckpoint>& found) {
  Start start;
  if (found || resumes(options)) {
    start = resume(plan, options, setup,
                   found ? *found : find_resumed(options, resumables(options), {.keep = true}));
    if (!options.initial_weights.empty())
      start.warnings.push_back("the weights are those of " + start.resumed.string() + ", not of " +
                               options.initial_weights.string());
  } else {
    if (!options.initial_weights.empty()) start = take_weights(plan, options, setup);
    if (options.initial_weights.empty()) {
      require_weights(setup.model, options);
      warn_of_unknown_starts(setup.model, start);
    }
    if (!options.resume.empty())
      start.warnings.push_back(options.resume.string() +
                               ": has no checkpoint yet, so the training begins anew");
  }
  const bool scale_goes_on = options.scales_dynamically() && start.position.loss_scale != LossScale{};
  if (!scale_goes_on)
    start.position.loss_scale = initial_loss_scale(options.loss_scale, options.scales_dynamically());
  return start;
}

Step snapshot_interval(const RunOptions& options, const Setup& setup) {
  if (options.checkpoint.empty()) {
    if (options.checkpoint_steps || options.checkpoint_time || options.checkpoint_auto)
      refuse(ErrorKind::usage, "--every is the time between checkpoints; give their folder with --checkpoint");
    return 0;
  }
  if (options.checkpoint_auto != options.between_failures.has_value()) {
    refuse(
        ErrorKind::usage,
        options.checkpoint_auto
            ? "--every auto weighs what checkpoints cost against failures; say how often one of the machines "
              "fails, --mean-time-between-failures 12h"
            : "--mean-time-between-failures is for --every auto, which chooses by it; add that, or leave it "
              "out");
  }
  if (options.checkpoint_auto) return 0;
  if (options.checkpoint_time) {
    if (options.checkpoint_time->count() > 0) return 0;
    refuse(ErrorKind::usage, "--every " + to_text(*options.checkpoint_time) + ": must be above 0");
  }
  const Step every = options.checkpoint_steps.value_or(setup.length.epoch.steps());
  if (every < 1) refuse(ErrorKind::usage, "--every " + std::to_string(every) + ": must be at least 1 step");
  if (every % setup.round != 0) {
    refuse(ErrorKind::usage, "--every " + std::to_string(every) +
                                 ": this plan's replicas take turns in rounds of " +
                                 std::to_string(setup.round) + " mini-batches; use a multiple");
  }
  return every;
}

}  // namespace pp::run
