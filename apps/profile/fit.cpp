// pp-profile fit: a device's figures from measured training steps.
#include <algorithm>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "apps/cli/arguments.h"
#include "apps/cli/options.h"
#include "apps/cli/output.h"
#include "apps/cli/table.h"
#include "apps/profile/commands.h"
#include "apps/profile/model_argument.h"
#include "apps/profile/run_ranks.h"
#include "libplan/report/calibration.h"
#include "libprofile/core/text.h"
#include "libprofile/estimate/fit_device.h"

namespace pp::profile_tool {
namespace {

struct FitOptions {
  std::vector<std::string> runs;
  std::string device;
  std::string output, trainer_output;
  std::string trainer;
  std::string parameters;
  std::string name, source;
  int seed = 1;
};

constexpr auto kFit = options(
    option<&FitOptions::runs>(
        "--runs",
        "measured steps: CSV files, libprofile/estimate has the columns, and report.json files of pp-run",
        {.value = "FILE", .required = true}),
    option<&FitOptions::device>("--device-spec",
                                "the device to start from, peaks and rough figures: a100, or a file",
                                {.value = "FILE", .required = true}),
    option<&FitOptions::trainer>(
        "--trainer", "who ran what names no trainer: pp-run, megatron, nemo, torchtitan, fsdp, or a file",
        {.value = "FILE", .standard = "pp-run of a GPU"}),
    option<&FitOptions::output>("-o,--output", "write the device; - for stdout", {.value = "FILE"}),
    option<&FitOptions::trainer_output>("--trainer-output", "write the only trainer's fitted figures",
                                        {.value = "FILE"}),
    option<&FitOptions::parameters>("--parameters",
                                    "names of what is fitted, such as types.efficiency,pp-run.launch_s; "
                                    "default all that is above 0 in the documents to start from",
                                    {.value = "LIST"}),
    option<&FitOptions::name>("--name", "of the fitted device; default as it was"),
    option<&FitOptions::source>("--source", "where the runs come from; default as it was"),
    option<&FitOptions::seed>("--seed", "of the halves", {.least = 0}));

/// A run of pp-run in one stage, in which a step is its micro-batches one after the other, whatever the
/// schedule.
profile::StepWork step_of_report(std::string_view text) {
  const plan::Plan plan = plan::parse_measured_run(text).plan;
  const plan::Training& training = plan.training;
  if (plan.stages.size() != 1 || plan.schedule.recompute != plan::RecomputePolicy::never ||
      !plan.stages.front().recompute.empty() || training.mini_batch % training.micro_batches != 0) {
    throw Error(ErrorKind::usage,
                "is of " + counted(static_cast<std::int64_t>(plan.stages.size()), "stage") +
                    "; reports of one stage with equal micro-batches and without recomputation "
                    "can be fitted, other runs as rows of a CSV file");
  }
  const int replicas = static_cast<int>(plan.stages.front().workers.size());
  profile::MeasuredRun run{.model = plan.model.name,
                           .micro_batch = training.mini_batch / training.micro_batches,
                           .micro_batches = (training.micro_batches + replicas - 1) / replicas,
                           .replicas = replicas,
                           .dtype = training.dtype};
  const Json json = parse_json(text);
  run.step = Seconds(ObjectReader(json, "").number("step_s"));
  if (!(run.step > Seconds{})) throw Error(ErrorKind::usage, "has no measured step; let it run some steps");
  return profile::step_work(plan.model, run);
}

/// What the files say: every step, and the peaks of those that have one.
struct Measured {
  profile::Figures start;
  std::string trainer;  ///< whose rows name none
  std::vector<profile::StepWork> steps;
  std::vector<profile::PeakRun> peaks;

  std::size_t trainer_at(const std::string& named) {
    const TrainerSpec spec = load_trainer(named.empty() ? trainer : named, start.device.kind);
    const auto found = std::ranges::find(start.trainers, spec.name, &TrainerSpec::name);
    if (found == start.trainers.end()) start.trainers.push_back(spec);
    return static_cast<std::size_t>(std::ranges::find(start.trainers, spec.name, &TrainerSpec::name) -
                                    start.trainers.begin());
  }

  void add(profile::StepWork step, std::size_t by, const std::string& file,
           const std::optional<profile::PeakRun>& peak) {
    step.trainer = by;
    step.source = std::filesystem::path(file).stem();
    steps.push_back(std::move(step));
    if (peak) peaks.push_back(*peak);
  }

  void add_rows(const std::string& file) {
    const std::vector<profile::MeasuredRun> runs = cli::load(file, profile::parse_measured_runs);
    std::map<std::string, ModelGraph> models;
    for (const profile::MeasuredRun& run : runs) {
      auto found = models.find(run.model);
      if (found == models.end()) found = models.emplace(run.model, load_model(run.model)).first;
      const std::size_t by = trainer_at(run.trainer);
      const TrainerSpec& spec = start.trainers[by];
      add(profile::step_work(found->second, run, spec), by, file,
          peak_of(run, found->second, start.device, spec));
    }
  }
};

Measured load_runs(const FitOptions& options, const profile::DeviceSpec& device) {
  Measured measured{.start = {device, {}}, .trainer = options.trainer, .steps = {}, .peaks = {}};
  for (const std::string& file : options.runs) {
    if (file.ends_with(".json")) {
      const std::size_t by = measured.trainer_at("");
      measured.add(cli::load(file, step_of_report), by, "reports", cli::load(file, peak_of_report));
    } else {
      measured.add_rows(file);
    }
  }
  return measured;
}

std::vector<std::string> names_in(const std::string& text) {
  std::vector<std::string> names;
  std::stringstream stream(text);
  for (std::string name; std::getline(stream, name, ',');) names.push_back(name);
  return names;
}

std::string percent(double share) { return cli::cell(100 * share, 3) + " %"; }

std::string error_line(const std::string& what, const profile::FitError& error) {
  return what + ": " + std::to_string(error.runs) + " runs, error " + percent(error.mean) + " in the mean, " +
         percent(error.median) + " in the median, signed " + percent(error.signed_mean) + '\n';
}

/// Of steps (profile::DeviceFit) or of peaks (profile::MemoryFit).
template <class Fit>
std::string error_lines(const std::string& of, const Fit& fit) {
  return error_line(of + "before", fit.before) + error_line(of + "fitted to a half", fit.fitted_half) +
         error_line(of + "the other half", fit.other_half) + error_line(of + "fitted to all", fit.all) + '\n';
}

Json error_json(const profile::FitError& error) {
  return {
      {"runs", error.runs}, {"mean", error.mean}, {"median", error.median}, {"signed_mean", error.signed_mean}};
}

template <class Fit>
Json errors_json(const Fit& fit) {
  return {{"before", error_json(fit.before)},
          {"fitted_half", error_json(fit.fitted_half)},
          {"other_half", error_json(fit.other_half)},
          {"all", error_json(fit.all)}};
}

/// Each of several sources in the fit and left out of it.
std::string source_lines(const profile::DeviceFit& fit) {
  if (fit.sources.size() < 2) return "";
  std::string text;
  for (const profile::SourceError& source : fit.sources) {
    text += error_line(source.source, source.in_fit);
    text += source.left_out.runs > 0 ? error_line(source.source + ", left out of the fit", source.left_out)
                                     : source.source + ": the other rows are too few to fit without it\n";
  }
  return text + '\n';
}

/// All that is said of a fit. `memory`, or why there is none.
struct Result {
  profile::Figures start;
  RunType dtype;
  profile::DeviceFit fit;
  std::optional<profile::MemoryFit> memory;
  std::string memory_left;
};

std::string change_line(const std::string& name, double from, double to,
                        const std::vector<std::string>& sources = {}) {
  std::ostringstream line;
  line << std::setprecision(10) << name << ": " << from << " -> " << to;
  for (const std::string& source : sources)
    line << (&source == &sources.front() ? ", carried by " : ", ") << source;
  line << '\n';
  return line.str();
}

std::string summary(const Result& result) {
  const auto& [start, dtype, fit, memory, memory_left] = result;
  std::string text = error_lines("", fit) + source_lines(fit);
  if (memory) text += error_lines("peak bytes, ", *memory);
  const std::vector<profile::FitParameter> parameters = profile::fit_parameters(start.trainers);
  for (const auto& [name, sources] : fit.fitted) {
    const auto& parameter = *std::ranges::find(parameters, name, &profile::FitParameter::name);
    text += change_line(name, parameter.get(start, dtype), parameter.get(fit.figures, dtype),
                        fit.sources.size() > 1 ? sources : std::vector<std::string>{});
  }
  if (memory) {
    text += change_line("context_bytes", static_cast<double>(start.device.context.value),
                        static_cast<double>(memory->context.value)) +
            change_line("memory_rounding", start.device.memory_rounding, memory->rounding);
  }
  for (const std::string& name : fit.unseen) text += name + ": left as it is, no run depends on it\n";
  if (!memory) text += "context_bytes, memory_rounding: left as they are, " + memory_left + '\n';
  return text;
}

Json result_json(const Result& result) {
  Json json = errors_json(result.fit);
  json["sources"] = json["fitted"] = json["trainers"] = Json::array();
  for (const profile::SourceError& source : result.fit.sources) {
    json["sources"].push_back({{"source", source.source}, {"in_fit", error_json(source.in_fit)}});
    if (source.left_out.runs > 0) json["sources"].back()["left_out"] = error_json(source.left_out);
  }
  for (const auto& [name, sources] : result.fit.fitted)
    json["fitted"].push_back({{"parameter", name}, {"sources", sources}});
  json["unseen"] = result.fit.unseen;
  json["device"] = profile::to_json(result.fit.figures.device);
  for (const TrainerSpec& trainer : result.fit.figures.trainers) json["trainers"].push_back(to_json(trainer));
  if (result.memory) {
    json["memory"] = errors_json(*result.memory);
  } else {
    json["memory_left"] = result.memory_left;
  }
  return json;
}

Result fit_to(const Measured& measured, const profile::FitOptions& options) {
  const profile::Figures& start = measured.start;
  Result result{.start = start,
                .dtype = measured.steps.empty() ? RunType() : measured.steps[0].run.dtype,
                .fit = profile::fit_device(start, measured.steps, options),
                .memory = {},
                .memory_left = {}};
  if (const auto unseen = profile::memory_unseen(start.device, measured.peaks)) {
    result.memory_left = *unseen;
    return result;
  }
  result.memory = profile::fit_memory(start.device, measured.peaks, options.seed);
  result.fit.figures.device.context = result.memory->context;
  result.fit.figures.device.memory_rounding = result.memory->rounding;
  return result;
}

/// Where the fitted figures come from.
std::string source_of(const Result& result, const std::string& source) {
  const profile::DeviceFit& fit = result.fit;
  std::string text = source + "; fitted by pp-profile fit to " + std::to_string(fit.all.runs) +
                     " measured steps, off by " + percent(fit.all.mean) +
                     " in the mean; fitted to a random half, by " + percent(fit.other_half.mean) +
                     " on the other";
  for (const profile::SourceError& one : fit.sources) {
    if (one.left_out.runs > 0)
      text += "; without " + one.source + ", by " + percent(one.left_out.mean) + " on it";
  }
  if (result.memory)
    text += "; memory to " + std::to_string(result.memory->all.runs) + " measured peaks, off by " +
            percent(result.memory->all.mean) + ", on the other half by " +
            percent(result.memory->other_half.mean);
  return text;
}

void fit(const FitOptions& options, const cli::Shell& shell) {
  const Measured measured = load_runs(
      options,
      cli::load(cli::shipped_document(options.device, "devices", "--device-spec"), profile::parse_device_spec));
  if (!options.trainer_output.empty() && measured.start.trainers.size() != 1)
    throw Error(ErrorKind::usage, "--trainer-output takes the figures of one trainer, the runs are of " +
                                      std::to_string(measured.start.trainers.size()) + "; fit one alone");
  cli::Output output(options.output), trainer_output(options.trainer_output);
  Result result = fit_to(
      measured, {.parameters = names_in(options.parameters), .seed = static_cast<unsigned>(options.seed)});
  profile::DeviceSpec& device = result.fit.figures.device;
  if (!options.name.empty()) device.name = options.name;
  device.source = source_of(result, options.source.empty() ? device.source : options.source);
  if (output.is_stdout()) {
    std::cerr << summary(result);
  } else {
    std::cout << (shell.json ? dump_json(result_json(result)) : summary(result));
  }
  output.write(dump_json(profile::to_json(device)));
  if (options.trainer_output.empty()) return;
  TrainerSpec& trainer = result.fit.figures.trainers.front();
  trainer.source = source_of(result, trainer.source);
  trainer_output.write(dump_json(to_json(trainer)));
}

}  // namespace

void add_fit(const cli::Command& app, cli::Shell& shell) {
  cli::add_command(app, shell, "fit", "a device's figures from measured training steps, for estimates", kFit,
                   fit,
                   {"pp-profile fit --runs runs.csv --device-spec configs/devices/a100.json -o device.json",
                    "pp-profile fit --runs runs.csv --device-spec configs/devices/h100.json --parameters "
                    "types.efficiency,pp-run.launch_s -o device.json",
                    "pp-profile fit --runs small.report.json --runs large.report.json --device-spec "
                    "configs/devices/cpu-core.json "
                    "--parameters types.half_flops -o device.json"});
}

}  // namespace pp::profile_tool
