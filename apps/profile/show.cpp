// pp-profile show: a profile as a table, or as a picture.
#include <array>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/cli/log.h"
#include "apps/cli/options.h"
#include "apps/cli/output.h"
#include "apps/profile/commands.h"
#include "apps/profile/tables.h"
#include "libprofile/measure/findings.h"
#include "libprofile/report/document_findings.h"
#include "libprofile/report/layer_svg.h"

namespace pp::profile_tool {
namespace {

struct ShowOptions {
  std::string profile;
  std::string svg;
  LayerTableOptions table;
};

void warn(const Profile& profile) {
  for (const std::string& finding : profile::profile_findings(profile)) cli::warn(finding);
  for (const std::string& finding : profile::document_findings(profile)) cli::warn(finding);
}

void show(const ShowOptions& options, const cli::Shell& shell) {
  cli::Output svg(options.svg);
  const Profile profile = cli::load(options.profile, parse_profile);
  if (svg.wanted()) {
    svg.write(profile::layer_svg(profile, {.order = options.table.order,
                                           .micro_batch_size = options.table.micro_batch_size,
                                           .limit = options.table.limit}));
  }
  warn(profile);
  if (svg.is_stdout()) return;
  if (shell.json) {
    std::cout << dump_json(to_json(profile));
    return;
  }
  LayerTableOptions table = options.table;
  table.width = cli::terminal_width();
  table.color = cli::use_color(shell);
  std::cout << profile_summary(profile) + '\n' + layer_table(profile, table);
}

}  // namespace

void add_show(const cli::Command& app, cli::Shell& shell) {
  auto options = std::make_shared<ShowOptions>();
  const cli::Command command = app.add_subcommand("show", "print a profile: one row per layer");
  command.add_option("profile", options->profile, "a profile.json").required().type_name("PROFILE");
  cli::add_enum(command, "--sort", options->table.order, "order of the rows");
  command
      .add_option("--micro-batch-size", options->table.micro_batch_size,
                  "which measured size; default: the largest")
      .type_name("N");
  command.add_option("--limit", options->table.limit, "rows to show; 0: all").check(cli::whole_number(0));
  command.add_option("--svg", options->svg, "draw the same rows as bars; - for stdout").type_name("FILE");
  static constexpr std::array<std::string_view, 3> kExamples{
      "pp-profile show profile.json --micro-batch-size 4",
      "pp-profile show profile.json --sort time --limit 10", "pp-profile show profile.json --svg layers.svg"};
  cli::add_common_options(command, shell, kExamples);
  command.final_callback([options, &shell] { show(*options, shell); });
}

}  // namespace pp::profile_tool
