// pp-plan export: a plan in another planner's format.
#include <array>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/cli/output.h"
#include "apps/plan/commands.h"
#include "libplan/interop/pipedream_export.h"

namespace pp::plan_tool {
namespace {

struct Options {
  std::string plan;
  std::string profile;
  std::string output = "-";
};

void export_plan(const Options& options) {
  const plan::Plan plan = cli::load(options.plan, plan::parse_plan);
  const Profile profile = cli::load(options.profile, parse_profile);
  with_context(cli::input_name(options.plan), [&] { plan::check_plan(plan); });
  cli::Output output(options.output);
  output.write(plan::export_pipedream(plan, profile));
}

}  // namespace

void add_export(const cli::Command& app, cli::Shell& shell) {
  auto options = std::make_shared<Options>();
  const cli::Command command = app.add_subcommand("export", "write a plan as PipeDream's stage text");
  command.add_option("plan", options->plan, "a plan.json").required().type_name("PLAN");
  command
      .add_option("--profile", options->profile, "the profile it was made from: times and sizes of the layers")
      .required()
      .type_name("PROFILE");
  command.add_option("-o,--output", options->output, "write the text; - for stdout")
      .type_name("FILE")
      .capture_default_str();
  static constexpr std::array<std::string_view, 3> kExamples{
      "pp-plan export plan.json --profile profile.json",
      "pp-plan export plan.json --profile profile.json -o graph.txt",
      "pp-plan export plan.json --profile profile.json -q > graph.txt"};
  cli::add_common_options(command, shell, kExamples);
  command.final_callback([options] { export_plan(*options); });
}

}  // namespace pp::plan_tool
