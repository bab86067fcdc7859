// pp-profile: measures a model layer by layer, and the links between devices.
#include "apps/profile/commands.h"

int main(int argc, char** argv) {
  const pp::cli::Tool tool{.name = "pp-profile",
                           .summary = "Measures a model layer by layer, and the links between devices.",
                           .default_command = "run",
                           .examples = {"pp-profile lenet5 --device cpu:2x1 -o profile.json",
                                        "pp-profile links --devices cpu:2x1 -o cluster.json",
                                        "pp-profile show profile.json --sort time"},
                           .add_commands = [](const pp::cli::Command& app, pp::cli::Shell& shell) {
                             pp::profile_tool::add_run(app, shell);
                             pp::profile_tool::add_estimate(app, shell);
                             pp::profile_tool::add_fit(app, shell);
                             pp::profile_tool::add_links(app, shell);
                             pp::profile_tool::add_models(app, shell);
                             pp::profile_tool::add_show(app, shell);
                             pp::profile_tool::add_diff(app, shell);
                             pp::profile_tool::add_merge(app, shell);
                             pp::profile_tool::add_import(app, shell);
                             pp::profile_tool::add_schema(app, shell);
                             pp::profile_tool::add_values(app, shell);
                           }};
  return pp::cli::run_tool(tool, argc, argv);
}
