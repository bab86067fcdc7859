// pp-plan simulate: a plan's step by the event simulator, as figures and pictures.
#include <array>
#include <iostream>
#include <memory>

#include "apps/cli/output.h"
#include "apps/cli/table.h"
#include "apps/plan/commands.h"
#include "apps/plan/pictures.h"
#include "apps/plan/tables.h"
#include "libplan/search/planner.h"

namespace pp::plan_tool {
namespace {

struct Options {
  std::string plan;
  int updates = 1;
  PictureOptions pictures;
};

Json to_json(const plan::SimulationResult& result) {
  Json json{{"makespan_s", result.makespan.count()},
            {"bubble_fraction", result.bubble_fraction},
            {"workers", Json::array()}};
  for (std::size_t w = 0; w < result.busy.size(); ++w) {
    json["workers"].push_back(
        {{"busy_s", result.busy[w].count()}, {"peak_bytes", result.memory[w].peak.value}});
  }
  return json;
}

void simulate(const Options& options, const cli::Shell& shell) {
  const plan::Plan plan = cli::load(options.plan, plan::parse_plan);
  with_context(options.plan, [&] { plan::check_plan(plan); });
  PictureFiles files(options.pictures);
  const Simulated simulated = simulate_all(plan_title(plan), plan::simulation_input(plan, options.updates));
  const plan::SimulationResult& result = simulated.result;
  files.write(simulated);
  if (files.take_stdout()) return;
  if (shell.json) {
    std::cout << dump_json(to_json(result));
    return;
  }
  std::cout << "makespan " << to_text(result.makespan) << ", bubble " << cli::percent(result.bubble_fraction)
            << " (1 - busy/(workers * makespan)), " << result.ops.size() << " operations, "
            << result.messages.size() << " messages\n"
            << timeline(simulated, options.pictures, cli::use_color(shell));
}

}  // namespace

void add_simulate(CLI::App& app, cli::Shell& shell) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("simulate", "simulate a plan's step");
  command->add_option("plan", options->plan, "a plan.json")->required()->type_name("PLAN");
  add_picture_options(*command, options->pictures);
  command->add_option("--updates", options->updates, "optimizer updates to simulate, for asynchronous plans")
      ->check(CLI::PositiveNumber);
  static constexpr std::array<std::string_view, 3> kExamples{"pp-plan simulate plan.json --svg step.svg",
                                                             "pp-plan simulate plan.json --trace trace.json",
                                                             "pp-plan simulate plan.json --updates 12 --json"};
  cli::add_common_options(*command, shell, kExamples);
  command->final_callback([options, &shell] { simulate(*options, shell); });
}

}  // namespace pp::plan_tool
