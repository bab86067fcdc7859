// Commands on profiles: show (a table, or a picture), diff (two side by side), merge (the micro-batch sizes
// of two in one).
#include <algorithm>
#include <iostream>
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

constexpr auto kShow = options(
    option<&ShowOptions::profile>("profile", "a profile.json", {.value = "PROFILE", .required = true}),
    option<&ShowOptions::table, &LayerTableOptions::order>("--sort", "order of the rows"),
    option<&ShowOptions::table, &LayerTableOptions::micro_batch_size>(
        "--micro-batch-size", "which measured size; default: the largest", {.value = "N"}),
    option<&ShowOptions::table, &LayerTableOptions::limit>("--limit", "rows to show; 0: all", {.least = 0}),
    option<&ShowOptions::svg>("--svg", "draw the same rows as bars; - for stdout", {.value = "FILE"}));

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

constexpr auto kDiff = options(
    option<&DiffOptions::first>("first", "a profile.json", {.value = "FIRST", .required = true}),
    option<&DiffOptions::second>("second", "another one", {.value = "SECOND", .required = true}),
    option<&DiffOptions::micro_batch_size>(
        "--micro-batch-size", "which measured size; default: the largest that both have", {.value = "N"}));

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

constexpr auto kMerge =
    options(option<&MergeOptions::first>("first", "a profile.json", {.value = "FIRST", .required = true}),
            option<&MergeOptions::second>("second", "one of the same model on the same kind of device",
                                          {.value = "SECOND", .required = true}),
            option<&MergeOptions::output>("-o,--output", "write the profile; - for stdout",
                                          {.value = "FILE", .required = true}),
            option<&MergeOptions::overlap>("--overlap", "whose times to keep where both have a size"));

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
  cli::add_command(
      app, shell, "show", "print a profile: one row per layer", kShow, show,
      {"pp-profile show profile.json --micro-batch-size 4",
       "pp-profile show profile.json --sort time --limit 10", "pp-profile show profile.json --svg layers.svg"});
}

void add_diff(const cli::Command& app, cli::Shell& shell) {
  cli::add_command(
      app, shell, "diff", "compare two profiles layer by layer", kDiff, diff,
      {"pp-profile diff monday.json tuesday.json", "pp-profile diff cpu.json gpu.json --micro-batch-size 8",
       "pp-profile diff float32.json bfloat16.json --json"});
}

void add_merge(const cli::Command& app, cli::Shell& shell) {
  cli::add_command(app, shell, "merge", "add the micro-batch sizes of another profile", kMerge, merge,
                   {"pp-profile merge small.json large.json -o profile.json",
                    "pp-profile merge old.json new.json --overlap second -o profile.json",
                    "pp-profile merge small.json large.json -o - > profile.json"});
}

}  // namespace pp::profile_tool
