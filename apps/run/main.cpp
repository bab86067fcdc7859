// pp-run: executes a plan.
#include <unistd.h>

#include <cstdio>

#include "apps/run/commands.h"
#include "apps/run/ranks.h"
#include "librun/run.h"

int main(int argc, char** argv) {
  pp::run_tool::Ranks ranks;
  const pp::cli::Tool tool{
      .name = "pp-run",
      .summary = "Trains a model as its plan says, or computes its outputs.",
      .default_command = "train",
      .examples = {"pp-run plan.json --data configs/data/digits --epochs 20 -o report.json",
                   "pp-run check plan.json --data configs/data/digits",
                   "pp-run report report.json --html report.html"},
      .options_of_plan = {"--optimizer", "--precision", "--mini-batch", "--micro-batches", "--micro-batch-size",
                          "--schedule", "--shard", "--recompute", "--devices", "--replicas", "--chunks",
                          "--cuts", "--weight-policy"},
      .parts = pp::run_tool::backends,
      .add_commands = [&ranks, argc, argv](const pp::cli::Command& app, pp::cli::Shell& shell) {
        pp::run_tool::add_train(app, shell, ranks, {argv + 1, argv + argc});
        pp::run_tool::add_infer(app, shell);
        pp::run_tool::add_check(app, shell, ranks);
        pp::run_tool::add_launch(app, shell);
        pp::run_tool::add_devices(app, shell);
        pp::run_tool::add_report(app, shell);
      }};
  const int code = ranks.leave(pp::cli::run_tool(tool, argc, argv));
  if (pp::run::runs_left_behind() > 0) {  // their threads would meet destroyed globals
    std::fflush(nullptr);
    _exit(code);
  }
  return code;
}
