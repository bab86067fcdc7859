// pp-plan check: a plan, also one written or edited by hand, is valid in full.
#include <array>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/cli/output.h"
#include "apps/plan/commands.h"
#include "libplan/plan.h"
#include "libprofile/core/counted.h"

namespace pp::plan_tool {
namespace {

struct CheckOptions {
  std::string plan;
  std::string profile;
};

void check(const CheckOptions& options, const cli::Shell& shell) {
  const plan::Plan plan = cli::load(options.plan, plan::parse_plan);
  with_context(cli::input_name(options.plan), [&] { plan::check_plan(plan); });
  if (!options.profile.empty()) {
    const Profile profile = cli::load(options.profile, parse_profile);
    with_context(cli::input_name(options.plan), [&] { plan::require_profile(plan, profile); });
  }
  if (shell.json) {
    std::cout << dump_json(Json{{"valid", true}, {"plan_hash", plan::plan_hash(plan)}});
  } else {
    std::cout << cli::input_name(options.plan) << ": valid (" << plan.schedule.name << ", "
              << counted(std::ssize(plan.stages), "stage") << ", "
              << counted(std::ssize(plan.workers), "worker") << ")\n";
  }
}

}  // namespace

void add_check(const cli::Command& app, cli::Shell& shell) {
  auto options = std::make_shared<CheckOptions>();
  const cli::Command command = app.add_subcommand("check", "check a plan: stages, workers, programs, memory");
  command.add_option("plan", options->plan, "a plan.json").required().type_name("PLAN");
  command.add_option("--profile", options->profile, "also that the plan was made from this profile")
      .type_name("PROFILE");
  static constexpr std::array<std::string_view, 3> kExamples{"pp-plan check plan.json",
                                                             "pp-plan check plan.json --profile profile.json",
                                                             "pp-plan check plan.json --json"};
  cli::add_common_options(command, shell, kExamples);
  command.final_callback([options, &shell] { check(*options, shell); });
}

}  // namespace pp::plan_tool
