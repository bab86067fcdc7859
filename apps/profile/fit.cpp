// pp-profile fit: a device's figures from measured training steps.
#include <algorithm>
#include <array>
#include <iomanip>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "apps/cli/options.h"
#include "apps/cli/output.h"
#include "apps/cli/shipped.h"
#include "apps/cli/table.h"
#include "apps/profile/commands.h"
#include "apps/profile/model_argument.h"
#include "apps/profile/run_peaks.h"
#include "libplan/report/calibration.h"
#include "libprofile/core/counted.h"
#include "libprofile/estimate/fit_device.h"

namespace pp::profile_tool {
namespace {

struct FitOptions {
  std::vector<std::string> runs;
  std::string device;
  std::string output;
  std::string parameters;
  std::string name, source;
  int seed = 1;
};

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
  std::vector<profile::StepWork> steps;
  std::vector<profile::PeakRun> peaks;

  void add(profile::StepWork step, const std::optional<profile::PeakRun>& peak) {
    steps.push_back(std::move(step));
    if (peak) peaks.push_back(*peak);
  }
};

void add_rows(const std::string& file, const profile::DeviceSpec& start, Measured& measured) {
  const std::vector<profile::MeasuredRun> runs = cli::load(file, profile::parse_measured_runs);
  std::map<std::string, ModelGraph> models;
  for (const profile::MeasuredRun& run : runs) {
    auto found = models.find(run.model);
    if (found == models.end()) found = models.emplace(run.model, load_model(run.model)).first;
    measured.add(profile::step_work(found->second, run), peak_of(run, found->second, start));
  }
}

Measured load_runs(const std::vector<std::string>& files, const profile::DeviceSpec& start) {
  Measured measured;
  for (const std::string& file : files) {
    if (file.ends_with(".json")) {
      measured.add(cli::load(file, step_of_report), cli::load(file, peak_of_report));
    } else {
      add_rows(file, start, measured);
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

template <class Fit>
Json error_json(const Fit& fit) {
  Json json;
  for (const auto& [name, error] : {std::pair{"before", fit.before}, std::pair{"fitted_half", fit.fitted_half},
                                    std::pair{"other_half", fit.other_half}, std::pair{"all", fit.all}}) {
    json[name] = {{"runs", error.runs},
                  {"mean", error.mean},
                  {"median", error.median},
                  {"signed_mean", error.signed_mean}};
  }
  return json;
}

/// All that is said of a fit. `memory`, or why there is none.
struct Result {
  profile::DeviceSpec start;
  DType dtype = DType::float32;
  profile::DeviceFit fit;
  std::optional<profile::MemoryFit> memory;
  std::string memory_left;
};

std::string change_line(const std::string& name, double from, double to) {
  std::ostringstream line;
  line << std::setprecision(10) << name << ": " << from << " -> " << to << '\n';
  return line.str();
}

std::string summary(const Result& result) {
  const auto& [start, dtype, fit, memory, memory_left] = result;
  std::string text = error_lines("", fit);
  if (memory) text += error_lines("peak bytes, ", *memory);
  for (const profile::FitParameter& parameter : profile::fit_parameters()) {
    if (std::ranges::find(fit.fitted, parameter.name) == fit.fitted.end()) continue;
    text += change_line(parameter.name, parameter.get(start, dtype), parameter.get(fit.device, dtype));
  }
  if (memory) {
    text += change_line("context_bytes", static_cast<double>(start.context.value),
                        static_cast<double>(memory->context.value)) +
            change_line("memory_rounding", start.memory_rounding, memory->rounding);
  }
  for (const std::string& name : fit.unseen) text += name + ": left as it is, no run depends on it\n";
  if (!memory) text += "context_bytes, memory_rounding: left as they are, " + memory_left + '\n';
  return text;
}

Json result_json(const Result& result) {
  Json json = error_json(result.fit);
  json["fitted"] = result.fit.fitted;
  json["unseen"] = result.fit.unseen;
  json["device"] = profile::to_json(result.fit.device);
  if (result.memory) {
    json["memory"] = error_json(*result.memory);
  } else {
    json["memory_left"] = result.memory_left;
  }
  return json;
}

Result fit_to(const Measured& measured, const profile::DeviceSpec& start, const profile::FitOptions& options) {
  Result result{.start = start,
                .dtype = measured.steps.empty() ? DType::float32 : measured.steps[0].run.dtype,
                .fit = profile::fit_device(start, measured.steps, options),
                .memory = {},
                .memory_left = {}};
  if (const auto unseen = profile::memory_unseen(start, measured.peaks)) {
    result.memory_left = *unseen;
    return result;
  }
  result.memory = profile::fit_memory(start, measured.peaks, options.seed);
  result.fit.device.context = result.memory->context;
  result.fit.device.memory_rounding = result.memory->rounding;
  return result;
}

/// Where the fitted figures come from.
std::string source_of(const Result& result, const std::string& source) {
  const profile::DeviceFit& fit = result.fit;
  std::string text = source + "; fitted by pp-profile fit to " + std::to_string(fit.all.runs) +
                     " measured steps, off by " + percent(fit.all.mean) +
                     " in the mean; fitted to a random half, by " + percent(fit.other_half.mean) +
                     " on the other";
  if (result.memory)
    text += "; memory to " + std::to_string(result.memory->all.runs) + " measured peaks, off by " +
            percent(result.memory->all.mean) + ", on the other half by " +
            percent(result.memory->other_half.mean);
  return text;
}

void fit(const FitOptions& options, const cli::Shell& shell) {
  const profile::DeviceSpec start =
      cli::load(cli::shipped_document(options.device, "devices", "--device-spec"), profile::parse_device_spec);
  const Measured measured = load_runs(options.runs, start);
  cli::Output output(options.output);
  Result result =
      fit_to(measured, start,
             {.parameters = names_in(options.parameters), .seed = static_cast<unsigned>(options.seed)});
  profile::DeviceSpec& device = result.fit.device;
  if (!options.name.empty()) device.name = options.name;
  device.source = source_of(result, options.source.empty() ? start.source : options.source);
  if (output.is_stdout()) {
    std::cerr << summary(result);
  } else {
    std::cout << (shell.json ? dump_json(result_json(result)) : summary(result));
  }
  output.write(dump_json(profile::to_json(device)));
}

}  // namespace

void add_fit(const cli::Command& app, cli::Shell& shell) {
  auto options = std::make_shared<FitOptions>();
  const cli::Command command =
      app.add_subcommand("fit", "a device's figures from measured training steps, for estimates");
  command
      .add_option(
          "--runs", options->runs,
          "measured steps: CSV files, libprofile/estimate has the columns, and report.json files of pp-run")
      .required()
      .type_name("FILE");
  command
      .add_option("--device-spec", options->device,
                  "the device to start from, peaks and rough figures: a100, or a file")
      .required()
      .type_name("FILE");
  command.add_option("-o,--output", options->output, "write the device; - for stdout").type_name("FILE");
  command
      .add_option(
          "--parameters", options->parameters,
          "names of what is fitted, such as types.efficiency,launch_s; default all that is above 0 in the "
          "device to start from")
      .type_name("LIST");
  command.add_option("--name", options->name, "of the fitted device; default as it was").type_name("TEXT");
  command.add_option("--source", options->source, "where the runs come from; default as it was")
      .type_name("TEXT");
  command.add_option("--seed", options->seed, "of the halves").check(cli::whole_number(0));
  static constexpr std::array<std::string_view, 3> kExamples{
      "pp-profile fit --runs runs.csv --device-spec configs/devices/a100.json -o device.json",
      "pp-profile fit --runs runs.csv --device-spec configs/devices/h100.json --parameters "
      "types.efficiency,launch_s -o device.json",
      "pp-profile fit --runs small.report.json --runs large.report.json --device-spec "
      "configs/devices/cpu-core.json "
      "--parameters types.half_flops -o device.json"};
  cli::add_common_options(command, shell, kExamples);
  command.final_callback([options, &shell] { fit(*options, shell); });
}

}  // namespace pp::profile_tool
