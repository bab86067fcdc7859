// pp-profile fit: a device's figures from measured training steps.
#include <algorithm>
#include <array>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "apps/cli/options.h"
#include "apps/cli/output.h"
#include "apps/cli/table.h"
#include "apps/profile/commands.h"
#include "apps/profile/model_argument.h"
#include "libplan/report/calibration.h"
#include "libprofile/core/counted.h"
#include "libprofile/estimate/fit_device.h"

namespace pp::profile_tool {
namespace {

struct Options {
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

void add_rows(const std::string& file, std::vector<profile::StepWork>& steps) {
  const std::vector<profile::MeasuredRun> runs = cli::load(file, profile::parse_measured_runs);
  std::map<std::string, ModelGraph> models;
  for (const profile::MeasuredRun& run : runs) {
    auto found = models.find(run.model);
    if (found == models.end()) found = models.emplace(run.model, load_model(run.model)).first;
    steps.push_back(profile::step_work(found->second, run));
  }
}

std::vector<profile::StepWork> load_runs(const std::vector<std::string>& files) {
  std::vector<profile::StepWork> steps;
  for (const std::string& file : files) {
    if (file.ends_with(".json")) {
      steps.push_back(cli::load(file, step_of_report));
    } else {
      add_rows(file, steps);
    }
  }
  return steps;
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

std::string summary(const profile::DeviceFit& fit, const profile::DeviceSpec& start, DType dtype) {
  std::string text = error_line("before", fit.before) + error_line("fitted to a half", fit.fitted_half) +
                     error_line("the other half", fit.other_half) + error_line("fitted to all", fit.all) + '\n';
  for (const profile::FitParameter& parameter : profile::fit_parameters()) {
    if (std::ranges::find(fit.fitted, parameter.name) == fit.fitted.end()) continue;
    std::ostringstream line;
    line << parameter.name << ": " << parameter.get(start, dtype) << " -> " << parameter.get(fit.device, dtype);
    text += line.str() + '\n';
  }
  for (const std::string& name : fit.unseen) text += name + ": left as it is, no run depends on it\n";
  return text;
}

Json error_json(const profile::FitError& error) {
  return {
      {"runs", error.runs}, {"mean", error.mean}, {"median", error.median}, {"signed_mean", error.signed_mean}};
}

Json fit_json(const profile::DeviceFit& fit) {
  return {{"before", error_json(fit.before)},
          {"fitted_half", error_json(fit.fitted_half)},
          {"other_half", error_json(fit.other_half)},
          {"all", error_json(fit.all)},
          {"fitted", fit.fitted},
          {"unseen", fit.unseen},
          {"device", profile::to_json(fit.device)}};
}

void fit(const Options& options, const cli::Shell& shell) {
  const profile::DeviceSpec start = cli::load(options.device, profile::parse_device_spec);
  const std::vector<profile::StepWork> runs = load_runs(options.runs);
  cli::Output output(options.output);
  profile::DeviceFit fit = profile::fit_device(
      start, runs, {.parameters = names_in(options.parameters), .seed = static_cast<unsigned>(options.seed)});
  if (!options.name.empty()) fit.device.name = options.name;
  const std::string fitted = "fitted by pp-profile fit to " + std::to_string(fit.all.runs) +
                             " measured steps, off by " + percent(fit.all.mean) +
                             " in the mean; fitted to a random half, by " + percent(fit.other_half.mean) +
                             " on the other";
  fit.device.source = (options.source.empty() ? start.source : options.source) + "; " + fitted;
  const std::string text = dump_json(profile::to_json(fit.device));
  if (output.is_stdout()) {
    std::cerr << summary(fit, start, runs.front().run.dtype);
  } else {
    std::cout << (shell.json ? dump_json(fit_json(fit)) : summary(fit, start, runs.front().run.dtype));
  }
  output.write(text);
}

}  // namespace

void add_fit(const cli::Command& app, cli::Shell& shell) {
  auto options = std::make_shared<Options>();
  const cli::Command command =
      app.add_subcommand("fit", "a device's figures from measured training steps, for estimates");
  command
      .add_option(
          "--runs", options->runs,
          "measured steps: CSV files, libprofile/estimate has the columns, and report.json files of pp-run")
      .required()
      .type_name("FILE");
  command.add_option("--device-spec", options->device, "the device to start from: peaks and rough figures")
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
