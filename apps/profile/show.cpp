// Commands on profiles: show (a table, or a picture), diff (two side by side), merge (the micro-batch sizes
// of two in one).
#include <algorithm>
#include <array>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/cli/options.h"
#include "apps/cli/output.h"
#include "apps/cli/progress.h"
#include "apps/cli/table.h"
#include "apps/profile/commands.h"
#include "apps/profile/tables.h"
#include "libprofile/measure/findings.h"
#include "libprofile/report/diff.h"
#include "libprofile/report/document_findings.h"
#include "libprofile/report/layer_svg.h"
#include "libprofile/report/merge.h"

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

struct DiffOptions {
  std::string first, second;
  std::optional<std::int64_t> micro_batch_size;
};

std::string ratio_text(const profile::LayerDiff& layer) {
  const auto ratio = layer.ratio();
  return ratio ? cli::cell(*ratio, 3) : "-";
}

std::vector<std::string> cells_of(const profile::LayerDiff& layer) {
  const auto ms = [](Seconds time) { return cli::cell(1e3 * time.count()); };
  const auto kib = [](Bytes bytes) { return cli::cell(static_cast<double>(bytes.value) / 1024); };
  return {layer.name,
          ms(layer.first),
          ms(layer.second),
          ratio_text(layer),
          layer.within_spread ? "yes" : "no",
          kib(layer.first_memory),
          kib(layer.second_memory)};
}

std::string differences_text(const std::vector<profile::Difference>& differences) {
  cli::Table table({{"differs", cli::Align::left},
                    {"first", cli::Align::left, cli::Overflow::wrap},
                    {"second", cli::Align::left, cli::Overflow::wrap}});
  for (const profile::Difference& difference : differences)
    table.add({difference.what, difference.first, difference.second});
  return differences.empty() ? "" : table.text() + '\n';
}

std::string only_text(const std::string& which, const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text.append(text.empty() ? "" : ", ").append(name);
  return text.empty() ? "" : "only in the " + which + ": " + text + '\n';
}

std::string diff_text(const profile::ProfileDiff& diff) {
  cli::Table table({{"layer", cli::Align::left},
                    {"first ms"},
                    {"second ms"},
                    {"second/first"},
                    {"in spread"},
                    {"first KiB"},
                    {"second KiB"}});
  for (const profile::LayerDiff& layer : diff.layers) table.add(cells_of(layer));
  table.add(cells_of(diff.total));
  const auto within = std::ranges::count_if(diff.layers, &profile::LayerDiff::within_spread);
  return differences_text(diff.differences) + "forward + backward, weights + saved, per micro-batch of " +
         std::to_string(diff.micro_batch_size) + " samples:\n" + table.text() +
         only_text("first", diff.only_first) + only_text("second", diff.only_second) +
         "\nmedian difference of a layer " + cli::percent(diff.median_change) + "; " + std::to_string(within) +
         " of " + std::to_string(diff.layers.size()) + " layers differ by no more than their spread\n";
}

void diff(const DiffOptions& options, const cli::Shell& shell) {
  const Profile first = cli::load(options.first, parse_profile);
  const Profile second = cli::load(options.second, parse_profile);
  const profile::ProfileDiff diff = profile::diff_profiles(first, second, options.micro_batch_size);
  std::cout << (shell.json ? dump_json(profile::to_json(diff)) : diff_text(diff));
}

struct MergeOptions {
  std::string first, second;
  std::string output;
  profile::Overlap overlap = profile::Overlap::refuse;
};

void merge(const MergeOptions& options, const cli::Shell& shell) {
  const Profile first = cli::load(options.first, parse_profile);
  const Profile second = cli::load(options.second, parse_profile);
  cli::Output output(options.output);
  const Profile merged = profile::merge_profiles(first, second, options.overlap);
  const std::string text = dump_json(to_json(merged));
  output.write(text);
  if (output.is_stdout()) return;
  std::cout << (shell.json ? text : profile_summary(merged));
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

void add_diff(const cli::Command& app, cli::Shell& shell) {
  auto options = std::make_shared<DiffOptions>();
  const cli::Command command = app.add_subcommand("diff", "compare two profiles layer by layer");
  command.add_option("first", options->first, "a profile.json").required().type_name("FIRST");
  command.add_option("second", options->second, "another one").required().type_name("SECOND");
  command
      .add_option("--micro-batch-size", options->micro_batch_size,
                  "which measured size; default: the largest that both have")
      .type_name("N");
  static constexpr std::array<std::string_view, 3> kExamples{
      "pp-profile diff monday.json tuesday.json", "pp-profile diff cpu.json gpu.json --micro-batch-size 8",
      "pp-profile diff float32.json bfloat16.json --json"};
  cli::add_common_options(command, shell, kExamples);
  command.final_callback([options, &shell] { diff(*options, shell); });
}

void add_merge(const cli::Command& app, cli::Shell& shell) {
  auto options = std::make_shared<MergeOptions>();
  const cli::Command command = app.add_subcommand("merge", "add the micro-batch sizes of another profile");
  command.add_option("first", options->first, "a profile.json").required().type_name("FIRST");
  command.add_option("second", options->second, "one of the same model on the same kind of device")
      .required()
      .type_name("SECOND");
  command.add_option("-o,--output", options->output, "write the profile; - for stdout")
      .required()
      .type_name("FILE");
  cli::add_enum(command, "--overlap", options->overlap, "whose times to keep where both have a size");
  static constexpr std::array<std::string_view, 3> kExamples{
      "pp-profile merge small.json large.json -o profile.json",
      "pp-profile merge old.json new.json --overlap second -o profile.json",
      "pp-profile merge small.json large.json -o - > profile.json"};
  cli::add_common_options(command, shell, kExamples);
  command.final_callback([options, &shell] { merge(*options, shell); });
}

}  // namespace pp::profile_tool
