// pp-run check: everything that training would refuse, without training.
#include <array>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/cli/log.h"
#include "apps/cli/output.h"
#include "apps/run/commands.h"
#include "apps/run/run_options.h"
#include "libprofile/core/counted.h"

namespace pp::run_tool {
namespace {

void check(const PlanAndOptions& options, const cli::Shell& shell) {
  const plan::Plan plan = load(options.files);
  run::RunOptions settings = options.run;
  if (!settings.steps && !settings.epochs && settings.resume.empty()) settings.epochs = 1;
  std::vector<std::string> warnings;
  with_context(cli::input_name(options.files.plan), [&] { warnings = run::check(plan, settings); });
  for (const std::string& warning : warnings) cli::warn(warning);
  if (shell.json) {
    std::cout << dump_json(Json{{"plan_hash", plan::plan_hash(plan)}, {"ok", true}});
  } else {
    std::cout << cli::input_name(options.files.plan) << ": can run (" << plan.schedule.name << ", "
              << counted(std::ssize(plan.stages), "stage") << ", "
              << counted(std::ssize(plan.workers), "worker") << ")\n";
  }
}

}  // namespace

void add_check(const cli::Command& app, cli::Shell& shell) {
  auto options = std::make_shared<PlanAndOptions>();
  const cli::Command command = app.add_subcommand("check", "check plan, data and devices without training");
  add_run_options(command, *options);
  static constexpr std::array<std::string_view, 3> kExamples{
      "pp-run check plan.json --data configs/data/digits", "pp-run check plan.json --data synthetic",
      "pp-run check plan.json --data synthetic --json"};
  cli::add_common_options(command, shell, kExamples);
  command.final_callback([options, &shell] { check(*options, shell); });
}

}  // namespace pp::run_tool
