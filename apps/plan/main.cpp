// pp-plan: turns a profile into a partition plan.
#include "apps/plan/commands.h"

int main(int argc, char** argv) {
  const pp::cli::Tool tool{
      .name = "pp-plan",
      .summary = "Turns a profile into the best partition plan, and explains plans.",
      .default_command = "make",
      .examples =
          {"pp-plan profile.json --cluster cluster.json --mini-batch 64 -o plan.json",
           "pp-plan profile.json --devices 4 --bandwidth 10GB/s --mini-batch 256 --schedule 1f1b --stages 4",
           "pp-plan show plan.json --timeline"},
      .add_commands = [](const pp::cli::Command& app, pp::cli::Shell& shell) {
        pp::plan_tool::add_make(app, shell);
        pp::plan_tool::add_price(app, shell);
        pp::plan_tool::add_compare(app, shell);
        pp::plan_tool::add_show(app, shell);
        pp::plan_tool::add_check(app, shell);
        pp::plan_tool::add_simulate(app, shell);
        pp::plan_tool::add_export(app, shell);
        pp::plan_tool::add_schedules(app, shell);
        pp::plan_tool::add_sweep(app, shell);
      }};
  return pp::cli::run_tool(tool, argc, argv);
}
