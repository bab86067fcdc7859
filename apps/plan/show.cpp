// pp-plan show: a plan as text.
#include <array>
#include <iostream>
#include <memory>

#include "apps/cli/output.h"
#include "apps/plan/commands.h"
#include "apps/plan/tables.h"
#include "libplan/search/planner.h"

namespace pp::plan_tool {
namespace {

constexpr int kTimelineWidth = 88;  // with the row's name below 100 columns

struct Options {
  std::string plan;
  bool timeline = false;
  bool programs = false;
};

void show(const Options& options, const cli::Shell& shell) {
  const plan::Plan plan = cli::load(options.plan, plan::parse_plan);
  if (shell.json) {
    std::cout << dump_json(plan::to_json(plan));
    return;
  }
  std::cout << plan_text(plan, cli::use_color(shell));
  if (options.programs) std::cout << '\n' << programs_text(plan);
  if (options.timeline) {
    std::cout << '\n' << timeline(plan::simulate(plan::simulation_input(plan)), kTimelineWidth);
  }
}

}  // namespace

void add_show(CLI::App& app, cli::Shell& shell) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("show", "print a plan: stages, promise, bound, alternatives");
  command->add_option("plan", options->plan, "a plan.json")->required()->type_name("PLAN");
  command->add_flag("--timeline", options->timeline, "one step, simulated, as text");
  command->add_flag("--programs", options->programs, "every worker's operations");
  static constexpr std::array<std::string_view, 3> kExamples{
      "pp-plan show plan.json", "pp-plan show plan.json --timeline", "pp-plan show plan.json --programs"};
  cli::add_common_options(*command, shell, kExamples);
  command->final_callback([options, &shell] { show(*options, shell); });
}

}  // namespace pp::plan_tool
