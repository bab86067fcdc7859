// pp-plan compare: every strategy, priced by one simulator.
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/cli/options.h"
#include "apps/cli/output.h"
#include "apps/cli/table.h"
#include "apps/plan/commands.h"
#include "apps/plan/planning_cases.h"
#include "apps/plan/planning_options.h"
#include "apps/plan/stage_table.h"
#include "apps/plan/warnings.h"
#include "libplan/report/compare_strategies.h"

namespace pp::plan_tool {
namespace {

struct CompareOptions {
  std::string profile;
  ClusterOptions cluster;
  RequestOptions request;
};

constexpr auto kCompare = options(
    option<&CompareOptions::profile>("profile", "a profile.json", {.value = "PROFILE", .required = true}));

std::int64_t peak_bytes(const plan::Plan& plan) {
  std::int64_t peak = 0;
  for (const plan::WorkerPrediction& worker : plan.predicted.workers)
    peak = std::max(peak, worker.memory.peak.value);
  return peak;
}

Json row_json(const plan::Comparison& row, Seconds ours) {
  Json json{{"strategy", name_of(row.strategy)}};
  if (const auto* why = std::get_if<std::string>(&row.result)) {
    json["why_not"] = *why;
    return json;
  }
  const plan::Plan& plan = std::get<plan::Plan>(row.result);
  json["schedule"] = plan.schedule.name;
  json["stages"] = plan::stages_text(plan);
  json["replicas"] = plan::replicas_text(plan);
  json["micro_batches"] = plan.training.micro_batches;
  json["step_s"] = plan.predicted.step.count();
  json["slower"] = plan.predicted.step / ours - 1;
  json["peak_bytes"] = peak_bytes(plan);
  return json;
}

/// Why a strategy has no plan stands under the table: `reasons`.
std::vector<std::string> row_cells(const plan::Comparison& row, Seconds ours, std::string& reasons) {
  const std::string strategy(name_of(row.strategy));
  if (const auto* why = std::get_if<std::string>(&row.result)) {
    reasons += strategy + ": " + *why + '\n';
    return {strategy, "-", "no plan", "-", "-", "-", "-"};
  }
  const plan::Plan& plan = std::get<plan::Plan>(row.result);
  return {strategy,
          plan.schedule.name,
          placed_text(plan.model, plan::stages_text(plan), plan::replicas_text(plan)),
          std::to_string(plan.training.micro_batches),
          cli::cell(plan.predicted.step.count() * 1e3),
          "+" + cli::percent(plan.predicted.step / ours - 1),
          cli::cell(static_cast<double>(peak_bytes(plan)) / 1048576)};
}

void compare(const CompareOptions& options, cli::Shell& shell) {
  std::vector<PlanningCase> cases = load_profiles({options.profile});
  place(cases, options.cluster);
  const auto& [file, profile, hash, cluster, runs, calibration] = cases.front();
  plan::PlanRequest request = to_request(options.request, profile);
  SearchClock clock("comparing", options.request.time_limit, shell);
  request.observer = clock.observer();
  const auto rows = plan::compare_strategies(profile, cluster, request);
  warn_about(profile, cluster);
  const auto* best = std::get_if<plan::Plan>(&rows.front().result);
  if (best == nullptr) {
    shell.exit_code = cli::ExitCode::infeasible;
    cli::say(shell.tool, "no feasible plan: " + std::get<std::string>(rows.front().result));
    return;
  }
  cli::Table table({{"strategy", cli::Align::left},
                    {"schedule", cli::Align::left, cli::Overflow::shorten, cli::kWhole},
                    {part_word(profile.model) + " on DP", cli::Align::left},
                    {"M"},
                    {"step ms"},
                    {"slower"},
                    {"peak MiB"}});
  Json json = Json::array();
  std::string reasons;
  for (const plan::Comparison& row : rows) {
    table.add(row_cells(row, best->predicted.step, reasons));
    json.push_back(row_json(row, best->predicted.step));
  }
  std::cout << (shell.json ? dump_json(json) : table.text() + (reasons.empty() ? "" : '\n' + reasons));
}

}  // namespace

void add_compare(const cli::Command& app, cli::Shell& shell) {
  cli::add_command(
      app, shell, "compare", "our plan beside every baseline's, priced by one simulator", kCompare, compare,
      {"pp-plan compare profile.json --cluster cluster.json --mini-batch 64",
       "pp-plan compare profile.json --devices 4 --bandwidth 10GB/s --mini-batch 64 --schedule 1f1b",
       "pp-plan compare profile.json --devices 8 --bandwidth 10GB/s --mini-batch 256 --json"},
      [](const cli::Command& command, CompareOptions& options) {
        add_cluster_options(command, options.cluster);
        add_request_options(command, options.request);
      });
}

}  // namespace pp::plan_tool
