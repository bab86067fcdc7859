// pp-plan simulate: a plan's step by the event simulator, as figures, timeline and Chrome trace.
#include <array>
#include <iostream>
#include <memory>

#include "apps/cli/output.h"
#include "apps/cli/table.h"
#include "apps/plan/commands.h"
#include "apps/plan/tables.h"
#include "libplan/search/planner.h"

namespace pp::plan_tool {
namespace {

constexpr int kTimelineWidth = 88;

struct Options {
  std::string plan;
  std::string trace;
  int updates = 1;
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
  cli::Output trace(options.trace);
  const plan::SimulationResult result = plan::simulate(plan::simulation_input(plan, options.updates));
  trace.write(plan::chrome_trace(result));
  if (trace.is_stdout()) return;
  if (shell.json) {
    std::cout << dump_json(to_json(result));
    return;
  }
  std::cout << "makespan " << to_text(result.makespan) << ", bubble " << cli::percent(result.bubble_fraction)
            << " (1 - busy/(workers * makespan)), " << result.ops.size() << " operations, "
            << result.messages.size() << " messages\n"
            << timeline(result, kTimelineWidth);
}

}  // namespace

void add_simulate(CLI::App& app, cli::Shell& shell) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("simulate", "simulate a plan's step");
  command->add_option("plan", options->plan, "a plan.json")->required()->type_name("PLAN");
  command->add_option("--trace", options->trace, "write Chrome trace JSON, for Perfetto; - for stdout")
      ->type_name("FILE");
  command->add_option("--updates", options->updates, "optimizer updates to simulate, for asynchronous plans")
      ->check(CLI::PositiveNumber);
  static constexpr std::array<std::string_view, 3> kExamples{"pp-plan simulate plan.json",
                                                             "pp-plan simulate plan.json --trace trace.json",
                                                             "pp-plan simulate plan.json --updates 12 --json"};
  cli::add_common_options(*command, shell, kExamples);
  command->final_callback([options, &shell] { simulate(*options, shell); });
}

}  // namespace pp::plan_tool
