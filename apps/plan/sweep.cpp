// pp-plan sweep: the best plan of every combination of devices, mini-batch, schedule and micro-batches.
#include <algorithm>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/cli/options.h"
#include "apps/cli/output.h"
#include "apps/cli/table.h"
#include "apps/cli/terminal_text.h"
#include "apps/plan/commands.h"
#include "apps/plan/planning_cases.h"
#include "apps/plan/planning_options.h"
#include "apps/plan/schedule_options.h"
#include "apps/plan/stage_table.h"
#include "apps/plan/warnings.h"
#include "libplan/report/sweep.h"
#include "libplan/request/request.h"
#include "libprofile/core/text.h"

namespace pp::plan_tool {
namespace {

constexpr auto kUsualCounts = "1,2,4,8,16";

struct SweepOptions {
  std::vector<std::string> profiles;
  ClusterOptions cluster;
  std::string devices, nodes;
  plan::TrainingBudget budget;
  std::string mini_batches;
  std::string micro_batches;           ///< empty: kUsualCounts, with a trainer auto
  std::vector<std::string> schedules;  ///< empty: the usual ones, or all of the trainer
  std::optional<plan::Trainer> trainer;
  RequestOptions request;  ///< of all combinations
  std::vector<std::string> reports;
  std::string strategy;
  int threads = 0;
  std::string csv;
};

/// The machines of the grid.
std::vector<ClusterOptions> machines_of(const SweepOptions& options) {
  if (options.devices.empty() && options.nodes.empty()) return {options.cluster};
  std::vector<ClusterOptions> machines;
  const bool nodes = !options.nodes.empty();
  for (const int count :
       cli::parse_counts(nodes ? options.nodes : options.devices, ',', nodes ? "--nodes" : "--devices")) {
    ClusterOptions& machine = machines.emplace_back(options.cluster);
    (nodes ? machine.nodes : machine.devices) = count;
  }
  return machines;
}

/// Per profile, each machine in its devices.
std::vector<std::vector<Cluster>> clusters_of(const SweepOptions& options, std::vector<PlanningCase>& cases) {
  std::vector<std::vector<Cluster>> clusters(cases.size());
  for (const ClusterOptions& machine : machines_of(options)) {
    place(cases, machine);
    for (std::size_t i = 0; i < cases.size(); ++i) clusters[i].push_back(cases[i].cluster);
  }
  return clusters;
}

/// `gpipe,1f1b`, as --schedule takes them.
std::string joined(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ",") + name;
  return list;
}

/// 0 stands for auto.
std::vector<int> counts_of(const SweepOptions& options) {
  const bool given = !options.micro_batches.empty();
  if (given ? options.micro_batches == "auto" : options.trainer.has_value()) return {0};
  return cli::parse_counts(given ? options.micro_batches : kUsualCounts, ',', "--micro-batches");
}

std::vector<int> mini_batches_of(const SweepOptions& options) {
  if (options.mini_batches.empty()) return {};
  return cli::parse_counts(options.mini_batches, ',', "--mini-batch");
}

plan::SweepSpec spec_of(const SweepOptions& options, const Profile& profile, std::vector<Cluster> clusters) {
  plan::PlanRequest request = to_request(options.request, profile);
  for (const Cluster& cluster : clusters) check_memory_limit(request, cluster);
  request.threads = 1;  // each of the plans that are made at the same time
  std::vector<std::string> schedules = options.schedules;
  if (options.trainer) {
    if (!schedules.empty()) request.schedule = joined(schedules);
    request = trainer_request(*options.trainer, std::move(request), options.request, profile);
    schedules.clear();
    for (const plan::ScheduleRow* row : plan::requested_schedules(request)) schedules.emplace_back(row->name);
  } else if (schedules.empty()) {
    schedules = {"gpipe", "1f1b", "zb-h1"};
  }
  return {.clusters = std::move(clusters),
          .mini_batches = mini_batches_of(options),
          .schedules = std::move(schedules),
          .micro_batches = counts_of(options),
          .request = request,
          .strategy = parse_strategy(options.strategy),
          .budget = options.budget,
          .threads = options.threads > 0 ? options.threads : default_threads()};
}

/// A column of what a row promises.
struct Figure {
  cli::Column column;
  std::function<std::string(const plan::SweepFigures&)> text;
};

std::string cell_of(const std::optional<double>& value, double unit) {
  return value ? cli::cell(*value / unit) : "-";
}

constexpr std::size_t kReason = 14;  ///< `infeasible (1)`

/// Of a model of tokens their number in place of samples; utilisation, money and days where they are known.
std::vector<Figure> figures_for(const plan::Throughput& known, const ModelGraph& model) {
  using F = plan::SweepFigures;
  std::vector<Figure> list{
      {{part_word(model) + " on DP", cli::Align::left, cli::Overflow::shorten, kReason},
       [&model](const F& f) { return placed_text(model, f.stages, f.replicas); }},
      {{"step ms"}, [](const F& f) { return cli::cell(f.step.count() * 1e3); }},
      {{known.of_tokens() ? "tokens/s" : "samples/s"},
       [](const F& f) { return cli::cell(f.throughput.items_per_s()); }},
      {{"bubble"}, [](const F& f) { return cli::percent(f.bubble_fraction); }},
      {{"peak MiB"}, [](const F& f) { return cli::cell(static_cast<double>(f.peak.value) / 1048576); }},
      {{"gap"}, [](const F& f) { return cli::percent(f.gap); }}};
  if (known.model_utilisation())
    list.push_back({{"MFU"}, [](const F& f) { return cli::percent(*f.throughput.model_utilisation()); }});
  if (known.price_per_hour && !known.samples)
    list.push_back({{"per million"}, [](const F& f) { return cell_of(f.throughput.cost_per_million(), 1); }});
  if (known.samples)
    list.push_back({{"days"}, [](const F& f) { return cell_of(f.throughput.duration()->count(), 86400); }});
  if (known.cost()) list.push_back({{"cost"}, [](const F& f) { return cell_of(f.throughput.cost(), 1); }});
  return list;
}

/// What rows of several profiles differ in.
std::vector<cli::Column> profile_columns(std::span<const plan::SweepRow> rows) {
  const auto differ = [&](auto member) {
    return std::ranges::adjacent_find(rows, std::ranges::not_equal_to(), member) != rows.end();
  };
  if (differ(&plan::SweepRow::tensor_degree)) return {{"tensor"}};
  if (differ(&plan::SweepRow::cores_per_device)) return {{"cores"}};
  return {};
}

std::vector<Figure> figures_for(std::span<const plan::SweepRow> rows, const ModelGraph& model) {
  const auto planned = std::ranges::find_if(rows, [](const auto& row) { return row.figures() != nullptr; });
  return figures_for(planned == rows.end() ? plan::Throughput{} : planned->figures()->throughput, model);
}

/// Reasons stand under the table, each once: they are too long for a cell, and many rows share one.
/// `with_front`: a last column marks the Pareto front.
std::string sweep_table(std::span<const plan::SweepRow> rows, const ModelGraph& model, bool with_front) {
  const std::vector<Figure> figures = figures_for(rows, model);
  std::vector<cli::Column> columns{
      {"devices"}, {"schedule", cli::Align::left, cli::Overflow::shorten, cli::kWhole}, {"M"}};
  for (const Figure& figure : figures) columns.push_back(figure.column);
  const std::vector<cli::Column> of_profile = profile_columns(rows);
  columns.insert(columns.end(), of_profile.begin(), of_profile.end());
  if (with_front) columns.push_back({"front"});
  const bool several =
      std::ranges::adjacent_find(rows, std::ranges::not_equal_to(), &plan::SweepRow::mini_batch) != rows.end();
  if (several) columns.insert(columns.begin() + 2, {"mini-batch"});
  cli::Table table(columns);
  const std::vector<bool> front = plan::pareto_front(rows);
  std::vector<std::string> reasons;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const plan::SweepRow& row = rows[r];
    std::vector<std::string> cells{std::to_string(row.devices), row.schedule,
                                   row.micro_batches > 0 ? std::to_string(row.micro_batches) : "auto"};
    if (several) cells.insert(cells.begin() + 2, std::to_string(row.mini_batch));
    std::vector<std::string> result(figures.size(), "-");
    if (const plan::SweepFigures* promised = row.figures()) {
      std::ranges::transform(figures, result.begin(), [&](const Figure& f) { return f.text(*promised); });
    } else {
      const std::string& reason = std::get<plan::SweepFailure>(row.result).reason;
      const auto at = std::ranges::find(reasons, reason);
      result.front() =
          std::string(plan::status_of(row)) + " (" + std::to_string(at - reasons.begin() + 1) + ")";
      if (at == reasons.end()) reasons.push_back(reason);
    }
    cells.insert(cells.end(), result.begin(), result.end());
    if (!of_profile.empty())
      cells.push_back(std::to_string(
          row.tensor_degree > 1 || row.cores_per_device == 0 ? row.tensor_degree : row.cores_per_device));
    if (with_front) cells.emplace_back(front[r] ? "*" : "");
    table.add(cells);
  }
  std::string text = table.text();
  if (std::ranges::any_of(rows, &plan::SweepRow::estimated))
    text += "times are estimated from the device's figures, not measured\n";
  if (with_front)
    text += "front: no other row takes less time for no more device hours, or the other way round\n";
  for (std::size_t i = 0; i < reasons.size(); ++i)
    text.append(i == 0 ? "\n(" : "(")
        .append(std::to_string(i + 1))
        .append(") ")
        .append(reasons[i])
        .append("\n");
  return text;
}

std::vector<plan::SweepRow> rows_of(const SweepOptions& options, std::vector<PlanningCase>& cases) {
  std::vector<std::vector<Cluster>> clusters = clusters_of(options, cases);
  std::vector<std::vector<plan::SweepRow>> sweeps;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const Profile& profile = cases[i].profile;
    sweeps.push_back(plan::sweep(profile, spec_of(options, profile, std::move(clusters[i]))));
  }
  return plan::best_rows(sweeps);
}

void run_sweep(const SweepOptions& options, cli::Shell& shell) {
  std::vector<PlanningCase> cases = load_profiles(options.profiles);
  const auto degrees = [](const PlanningCase& one) {
    return std::tuple(one.profile.context_parallel.degree, one.profile.expert_parallel.degree,
                      one.profile.shard_group.degree);
  };
  if (std::ranges::adjacent_find(cases, std::ranges::not_equal_to(), degrees) != cases.end())
    throw Error(
        ErrorKind::usage,
        "rows of a sweep do not say a context, expert or shard degree, in which the profiles differ; sweep "
        "those of one alone, or let pp-plan make choose");
  if (options.trainer) introduce(*options.trainer, options.request, cases.front().profile);
  calibrate(cases, options.reports);
  cli::Output csv(options.csv);
  const std::vector<plan::SweepRow> rows = rows_of(options, cases);
  warn_about(cases);
  say_of_cards(options.cluster);

  if (csv.wanted()) csv.write(plan::sweep_csv(rows));
  if (!csv.is_stdout())
    std::cout << (shell.json ? dump_json(plan::to_json(rows))
                             : sweep_table(rows, cases.front().profile.model, !options.nodes.empty()));
  if (std::ranges::all_of(rows, [](const plan::SweepRow& row) { return row.figures() == nullptr; })) {
    const bool refused =
        std::ranges::all_of(rows, [](const plan::SweepRow& row) { return plan::status_of(row) == "refused"; });
    shell.exit_code = refused ? cli::ExitCode::usage : cli::ExitCode::infeasible;
    cli::say(shell.tool, "no combination has a plan");
  }
}

constexpr auto kGrid = options(
    option<&SweepOptions::profiles>(
        "profile",
        "a profile.json, or several as pp-plan make takes them: of each combination the fastest counts",
        {.value = "PROFILE", .required = true}),
    option<&SweepOptions::csv>("--csv", "write the rows as CSV; - for stdout", {.value = "FILE"}),
    option<&SweepOptions::devices>("--devices", "numbers of equal devices of the profile's kind",
                                   {.group = "Machine", .value = "N,N"}),
    option<&SweepOptions::nodes>("--nodes", "numbers of copies of the first node of --cluster or --levels",
                                 {.value = "N,N", .not_with = "--devices"}),
    trainer_option<&SweepOptions::trainer>(),
    option<&SweepOptions::mini_batches>("--mini-batch,--mini-batches", "samples per optimizer update",
                                        {.group = "Training", .value = "N,N"}),
    option<&SweepOptions::micro_batches>("--micro-batches", "counts per mini-batch, or auto: the best",
                                         {.value = "M,M", .standard = "1,2,4,8,16; with --for auto"}),
    option<&SweepOptions::schedules>("--schedule,--schedules", "auto, names of `pp-plan schedules`",
                                     {.group = "Search",
                                      .value = "NAME,NAME",
                                      .standard = "gpipe,1f1b,zb-h1; with --for the trainer's",
                                      .separator = ','}),
    option<&SweepOptions::strategy>("--strategy", "how every combination is cut",
                                    {.value = "NAME", .values = all_names<plan::Strategy>}),
    option<&SweepOptions::threads>("--threads", "plans made at the same time",
                                   {.least = 1, .standard = "one per core"}),
    calibrate_option<&SweepOptions::reports>());

}  // namespace

void add_sweep(const cli::Command& app, cli::Shell& shell) {
  cli::add_command(app, shell, "sweep",
                   "the best plan for every combination of devices, mini-batch, schedule and micro-batches",
                   kGrid, run_sweep,
                   {"pp-plan sweep profile.json --devices 2,4,8 --bandwidth 10GB/s --mini-batch 64",
                    "pp-plan sweep profile.json --cluster cluster.json --mini-batch 64 --micro-batches 4,8,16 "
                    "--json",
                    "pp-plan sweep profile.json --devices 4 --bandwidth 10GB/s --mini-batch 64 --stages 4 "
                    "--replicas 1-1-1-1 "
                    "--csv -"},
                   [](const cli::Command& command, SweepOptions& options) {
                     add_machine_options(command, options.cluster);
                     add_budget_options(command, options.budget);
                     add_shape_options(command, options.request);
                     add_basic_options(command, options.request);
                   });
}

}  // namespace pp::plan_tool
