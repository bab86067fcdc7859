// pp-profile show: a profile as a table.
#include <array>
#include <iostream>
#include <memory>

#include "apps/cli/options.h"
#include "apps/cli/output.h"
#include "apps/profile/commands.h"
#include "apps/profile/tables.h"

namespace pp::profile_tool {
namespace {

struct Options {
  std::string profile;
  LayerTableOptions table;
};

void show(const Options& options, const cli::Shell& shell) {
  const Profile profile = cli::load(options.profile, parse_profile);
  if (shell.json) {
    std::cout << dump_json(to_json(profile));
    return;
  }
  LayerTableOptions table = options.table;
  table.color = cli::use_color(shell);
  std::cout << profile_summary(profile) << '\n' << layer_table(profile, table);
}

}  // namespace

void add_show(CLI::App& app, cli::Shell& shell) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("show", "print a profile: one row per layer");
  command->add_option("profile", options->profile, "a profile.json")->required()->type_name("PROFILE");
  cli::add_enum(*command, "--sort", options->table.order, "order of the rows");
  command
      ->add_option("--micro-batch-size", options->table.micro_batch_size,
                   "which measured size; default: the largest")
      ->type_name("N");
  command->add_option("--limit", options->table.limit, "rows to show; 0: all")->check(CLI::NonNegativeNumber);
  static constexpr std::array<std::string_view, 3> kExamples{
      "pp-profile show profile.json", "pp-profile show profile.json --sort time --limit 10",
      "pp-profile show profile.json --micro-batch-size 4"};
  cli::add_common_options(*command, shell, kExamples);
  command->final_callback([options, &shell] { show(*options, shell); });
}

}  // namespace pp::profile_tool
