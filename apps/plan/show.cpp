// pp-plan show: a plan as text and pictures.
#include <array>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/cli/output.h"
#include "apps/plan/commands.h"
#include "apps/plan/pictures.h"
#include "apps/plan/planning_options.h"
#include "apps/plan/tables.h"
#include "libplan/plan.h"
#include "libplan/price/predict.h"
#include "libplan/search/planner.h"

namespace pp::plan_tool {
namespace {

struct Options {
  std::string plan;
  bool timeline = false;
  bool programs = false;
  PictureOptions pictures;
  plan::TrainingBudget budget;
};

/// Enough of a stream that filling, steady state and draining are seen.
int updates_to_show(const plan::Plan& plan) {
  const bool synchronous = plan::require_schedule(plan.schedule.name).synchronous;
  return synchronous ? 1 : 3 * static_cast<int>(plan.workers.size());
}

void show(const Options& options, const cli::Shell& shell) {
  const plan::Plan plan = cli::load(options.plan, plan::parse_plan);
  with_context(cli::input_name(options.plan), [&] { plan::check_plan(plan); });
  PictureFiles files(options.pictures);
  Simulated simulated;
  if (options.timeline || files.wanted()) {
    const auto input = [&] { return plan::simulation_input(plan, updates_to_show(plan)); };
    simulated = simulate_all(picture_names(plan), with_context(cli::input_name(options.plan), input));
  }
  files.write(simulated);
  if (files.take_stdout()) return;
  std::optional<plan::Throughput> throughput;
  if (!plan.predicted.workers.empty()) throughput = plan::throughput_of(plan, options.budget);
  if (shell.json) {
    std::cout << dump_json(plan_json(plan, throughput));
    return;
  }
  std::cout << plan_text(plan, throughput, cli::use_color(shell));
  if (options.programs) std::cout << '\n' << programs_text(plan);
  if (options.timeline) std::cout << '\n' << timeline(simulated, options.pictures, cli::use_color(shell));
}

}  // namespace

void add_show(const cli::Command& app, cli::Shell& shell) {
  auto options = std::make_shared<Options>();
  const cli::Command command = app.add_subcommand("show", "print a plan: stages, promise, bound, alternatives");
  command.add_option("plan", options->plan, "a plan.json").required().type_name("PLAN");
  command.add_flag("--timeline", options->timeline, "one step, simulated, as text, with memory over time");
  command.add_flag("--programs", options->programs, "every worker's operations");
  add_budget_options(command, options->budget);
  add_picture_options(command, options->pictures);
  static constexpr std::array<std::string_view, 3> kExamples{"pp-plan show plan.json --programs",
                                                             "pp-plan show plan.json --timeline",
                                                             "pp-plan show plan.json --svg step.svg"};
  cli::add_common_options(command, shell, kExamples);
  command.final_callback([options, &shell] { show(*options, shell); });
}

}  // namespace pp::plan_tool
