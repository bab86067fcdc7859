// pp-plan sweep: the best plan of every combination of devices, schedule and micro-batches.
#include <algorithm>
#include <array>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/cli/options.h"
#include "apps/cli/output.h"
#include "apps/cli/table.h"
#include "apps/plan/commands.h"
#include "apps/plan/planning_options.h"
#include "libplan/report/sweep_svg.h"
#include "libprofile/core/counted.h"

namespace pp::plan_tool {
namespace {

struct Options {
  std::string profile;
  ClusterOptions cluster;
  std::string devices;
  std::string micro_batches = "1,2,4,8,16";
  std::vector<std::string> schedules{"gpipe", "1f1b", "zb-h1"};
  plan::PlanRequest request;
  std::string replicas;
  std::string strategy;
  int threads = 0;
  std::string csv;
  std::string svg;
};

std::vector<Cluster> clusters_of(const Options& options, const Profile& profile) {
  if (options.devices.empty()) return {load_cluster(options.cluster, profile)};
  std::vector<Cluster> clusters;
  ClusterOptions cluster = options.cluster;
  for (const int count : cli::parse_counts(options.devices, ',', "--devices")) {
    cluster.devices = count;
    clusters.push_back(load_cluster(cluster, profile));
  }
  return clusters;
}

plan::SweepSpec spec_of(const Options& options, const Profile& profile) {
  plan::PlanRequest request = options.request;
  if (!options.replicas.empty()) request.replicas = cli::parse_counts(options.replicas, '-', "--replicas");
  return {.clusters = clusters_of(options, profile),
          .schedules = options.schedules,
          .micro_batches = cli::parse_counts(options.micro_batches, ',', "--micro-batches"),
          .request = request,
          .strategy = parse_strategy(options.strategy),
          .threads = options.threads > 0 ? options.threads : default_threads()};
}

std::vector<std::string> cells_of(const plan::SweepFigures& figures) {
  return {figures.stages + " on " + figures.replicas,
          cli::cell(figures.step.count() * 1e3),
          cli::cell(figures.samples_per_s),
          cli::percent(figures.bubble_fraction),
          cli::cell(static_cast<double>(figures.peak.value) / 1048576),
          cli::percent(figures.gap)};
}

/// Reasons stand under the table, each once: they are too long for a cell, and many rows share one.
std::string sweep_table(std::span<const plan::SweepRow> rows) {
  cli::Table table({{"devices"},
                    {"schedule", cli::Align::left},
                    {"M"},
                    {"stages on replicas", cli::Align::left},
                    {"step ms"},
                    {"samples/s"},
                    {"bubble"},
                    {"peak MiB"},
                    {"gap"}});
  std::vector<std::string> reasons;
  for (const plan::SweepRow& row : rows) {
    std::vector<std::string> cells{std::to_string(row.devices), row.schedule,
                                   std::to_string(row.micro_batches)};
    std::vector<std::string> result(6, "-");
    if (const plan::SweepFigures* figures = row.figures()) {
      result = cells_of(*figures);
    } else {
      const std::string& reason = std::get<plan::SweepFailure>(row.result).reason;
      const auto at = std::ranges::find(reasons, reason);
      result.front() =
          std::string(plan::status_of(row)) + " (" + std::to_string(at - reasons.begin() + 1) + ")";
      if (at == reasons.end()) reasons.push_back(reason);
    }
    cells.insert(cells.end(), result.begin(), result.end());
    table.add(cells);
  }
  std::string text = table.text();
  for (std::size_t i = 0; i < reasons.size(); ++i)
    text.append(i == 0 ? "\n(" : "(")
        .append(std::to_string(i + 1))
        .append(") ")
        .append(reasons[i])
        .append("\n");
  return text;
}

/// The model, and what all combinations have in common.
std::string picture_title(const Options& options, const Profile& profile) {
  std::string title = profile.model.name + ", mini-batch " + std::to_string(options.request.mini_batch);
  if (options.request.stages) title += ", " + counted(*options.request.stages, "stage");
  if (!options.replicas.empty()) title += ", replicas " + options.replicas;
  return title + (options.strategy.empty() ? "" : ", " + options.strategy);
}

void run_sweep(const Options& options, cli::Shell& shell) {
  const Profile profile = cli::load(options.profile, parse_profile);
  const plan::SweepSpec spec = spec_of(options, profile);
  cli::Output csv(options.csv);
  cli::Output svg(options.svg);
  const std::vector<plan::SweepRow> rows = plan::sweep(profile, spec);

  if (csv.wanted()) csv.write(plan::sweep_csv(rows));
  if (svg.wanted()) {
    svg.write(plan::sweep_svg(rows, {picture_title(options, profile)}));
  }
  if (!csv.is_stdout() && !svg.is_stdout())
    std::cout << (shell.json ? dump_json(plan::to_json(rows)) : sweep_table(rows));
  if (std::ranges::all_of(rows, [](const plan::SweepRow& row) { return row.figures() == nullptr; })) {
    const bool refused =
        std::ranges::all_of(rows, [](const plan::SweepRow& row) { return plan::status_of(row) == "refused"; });
    shell.exit_code = refused ? cli::ExitCode::usage : cli::ExitCode::infeasible;
    cli::say(shell.tool, "no combination has a plan");
  }
}

void add_grid_options(const cli::Command& command, Options& options) {
  const cli::Option devices =
      command.add_option("--devices", options.devices, "numbers of equal devices of the profile's kind")
          .type_name("N,N");
  add_machine_options(command, options.cluster, devices);
  command.add_option("--micro-batches", options.micro_batches, "counts per mini-batch")
      .capture_default_str()
      .type_name("M,M")
      .group("Training");
  command.add_option("--schedules", options.schedules, "auto, names of `pp-plan schedules`")
      .delimiter(',')
      .allow_extra_args(false)
      .default_str("gpipe,1f1b,zb-h1")
      .type_name("NAME,NAME")
      .group("Search");
  add_partition_options(command, options.request, options.replicas);
  command
      .add_option("--strategy", options.strategy,
                  "how every combination is cut: " + list_names<plan::Strategy>())
      .type_name("NAME")
      .group("Search");
  command.add_option("--threads", options.threads, "plans made at the same time")
      .default_str("one per core")
      .check(cli::whole_number(1))
      .group("Search");
}

}  // namespace

void add_sweep(const cli::Command& app, cli::Shell& shell) {
  auto options = std::make_shared<Options>();
  const cli::Command command =
      app.add_subcommand("sweep", "the best plan for every combination of devices, schedule and micro-batches");
  command.add_option("profile", options->profile, "a profile.json").required().type_name("PROFILE");
  command.add_option("--csv", options->csv, "write the rows as CSV; - for stdout").type_name("FILE");
  command.add_option("--svg", options->svg, "draw step time and bubble against micro-batches; - for stdout")
      .type_name("FILE");
  add_grid_options(command, *options);
  add_basic_options(command, options->request);
  static constexpr std::array<std::string_view, 3> kExamples{
      "pp-plan sweep profile.json --devices 2,4,8 --bandwidth 10GB/s --mini-batch 64",
      "pp-plan sweep profile.json --cluster cluster.json --mini-batch 64 --micro-batches 4,8,16 --svg "
      "sweep.svg",
      "pp-plan sweep profile.json --devices 4 --bandwidth 10GB/s --mini-batch 64 --stages 4 --replicas 1-1-1-1 "
      "--csv -"};
  cli::add_common_options(command, shell, kExamples);
  command.final_callback([options, &shell] { run_sweep(*options, shell); });
}

}  // namespace pp::plan_tool
