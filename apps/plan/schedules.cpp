// pp-plan schedules: the registry of schedules, and its table in Markdown.
#include <algorithm>
#include <array>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "apps/cli/options.h"
#include "apps/cli/table.h"
#include "apps/plan/commands.h"
#include "libplan/report/schedule_study.h"
#include "libplan/schedule/schedule.h"
#include "libprofile/core/json_reader.h"

namespace pp::plan_tool {

namespace {

struct SchedulesOptions {
  bool markdown = false;
};
constexpr auto kSchedules = options(option<&SchedulesOptions::markdown>(
    "--markdown", "the reference: what each schedule holds and how long it waits"));

Json policies_json(const plan::ScheduleRow& row) {
  Json policies = Json::array();
  for (const plan::WeightPolicy policy : row.policies) policies.push_back(name_of(policy));
  return policies;
}

using plan::ScheduleRow;

constexpr int kWorkers = 4;
constexpr int kMicroBatches = 8;
constexpr double kParts = 3;  // F, I and W of a micro-batch

/// Where a schedule was published, by the beginning of its name; the first that fits counts.
constexpr std::array<std::pair<std::string_view, std::string_view>, 24> kSources{{
    {"naive", "-"},
    {"data-parallel", "-"},
    {"gpipe", "Huang et al., NeurIPS 2019"},
    {"1f1b", "Narayanan et al., ICML 2021 (PipeDream-Flush)"},
    {"hybrid", "1F1B with data parallelism, as in Megatron-LM"},
    {"dapple", "Fan et al., PPoPP 2021"},
    {"interleaved", "Narayanan et al., SC 2021"},
    {"looped-bfs", "Lamy-Poirier, MLSys 2023"},
    {"zb-v", "Qi et al., NeurIPS 2024"},
    {"zb-", "Qi et al., ICLR 2024"},
    {"auto-zb", "Qi et al., ICLR 2024"},
    {"dualpipe-v", "DeepSeek-V3 report, 2024; one copy in a V"},
    {"chimera", "Li and Hoefler, SC 2021"},
    {"pipedream", "Narayanan et al., SOSP 2019"},
    {"vertical-sync", "Narayanan et al., SOSP 2019"},
    {"2bw", "Narayanan et al., ICML 2021"},
    {"macrobatch", "PipeDream's released runtime"},
    {"spectrain", "Chen et al., 2018"},
    {"xpipe", "Guan et al., 2019"},
    {"downpour", "Dean et al., NIPS 2012"},
    {"ssp", "Ho et al., NIPS 2013"},
    {"hogwild", "Recht et al., NIPS 2011"},
    {"partime", "Meloni et al., 2022"},
    {"harmony", "Li et al., VLDB 2022"},
}};

std::string source_of(const ScheduleRow& row) {
  const auto found =
      std::ranges::find_if(kSources, [&](const auto& source) { return row.name.starts_with(source.first); });
  return found == kSources.end() ? "-" : std::string(found->second);
}

std::string chunks_of(const ScheduleRow& row) {
  switch (row.chunks) {
    case plan::Chunks::one: return "1";
    case plan::Chunks::two: return "2";
    case plan::Chunks::several: return "v";
  }
  return {};
}

std::string replicas_of(const ScheduleRow& row) {
  switch (row.replication) {
    case plan::Replication::none: return "none";
    case plan::Replication::pipelines: return "whole pipelines";
    case plan::Replication::equal: return "equal";
    case plan::Replication::any: return "any";
  }
  return {};
}

plan::ScheduleStudy study_of(const ScheduleRow& row) {
  plan::ScheduleStudy study;
  study.request.name = row.name;
  study.request.micro_batches = row.needs.starts_with("M = 1") ? 1 : kMicroBatches;
  study.request.replicas.assign(row.one_stage ? 1 : kWorkers, row.one_stage ? kWorkers : 1);
  if (row.chunks != plan::Chunks::one) study.request.chunks_per_worker = 2;
  if (!row.synchronous) {
    study.stream_length = kMicroBatches;
    study.request.micro_batches = row.needs == "M >= K" || row.any_count ? kWorkers : 1;
  }
  return study;
}

/// Bubble of a single step, or of eight micro-batches of a stream; in the steady state, where steps or
/// micro-batches follow each other; and what the first and the last worker hold.
std::array<std::string, 3> figures_of(const ScheduleRow& row) {
  if (row.source == plan::ProgramSource::file) return {"-", "-", "-"};
  const plan::ScheduleStudy study = study_of(row);
  const plan::ScheduleFigures figures = study_schedule(study);
  std::string steady = "-";
  if (figures.steady_period) {
    double work = 0;  // of a worker, in what the period is of: a step, or a micro-batch of a stream
    for (const Seconds busy : figures.result.busy) work += busy.count() / kWorkers;
    if (!row.synchronous) work = kParts / (row.one_stage ? kWorkers : 1);
    steady = cli::percent(std::max(0.0, 1 - work / figures.steady_period->count()));
  }
  const std::string first = cli::cell(figures.peak_in_flight.front(), 3);
  const std::string last = cli::cell(figures.peak_in_flight.back(), 3);
  return {cli::percent(figures.result.bubble_fraction), steady, first == last ? first : first + " .. " + last};
}

/// A line per schedule, as libplan/schedule/README.md has it. Its figures are of four workers and eight
/// micro-batches whose F, I and W take the same, simulated without messages; `-`: the schedule has no programs
/// without costs or a file.
std::string schedule_reference() {
  std::string text =
      "| schedule | what | weights | stages of a worker | replicas | needs | bubble | in a row | holds | "
      "published "
      "|\n|---|---|---|---|---|---|---|---|---|---|\n";
  for (const ScheduleRow& row : plan::schedule_table()) {
    const auto [bubble, steady, holds] = figures_of(row);
    text.append("| `").append(row.name).append("` | ").append(row.summary);
    for (const std::string& cell :
         {std::string(name_of(row.default_policy())), chunks_of(row), replicas_of(row),
          row.needs.empty() ? std::string("-") : std::string(row.needs), bubble, steady, holds, source_of(row)})
      text += " | " + cell;
    text += " |\n";
  }
  return text;
}

void schedules(const SchedulesOptions& options, const cli::Shell& shell) {
  if (options.markdown) {
    std::cout << schedule_reference();
    return;
  }
  cli::Table table({{"schedule", cli::Align::left},
                    {"kind", cli::Align::left},
                    {"weights", cli::Align::left},
                    {"summary", cli::Align::left},
                    {"needs", cli::Align::left}});
  Json json = Json::array();
  for (const plan::ScheduleRow& row : plan::schedule_table()) {
    table.add({std::string(row.name), row.synchronous ? "sync" : "async",
               std::string(name_of(row.default_policy())), std::string(row.summary),
               row.needs.empty() ? "-" : std::string(row.needs)});
    json.push_back({{"name", row.name},
                    {"synchronous", row.synchronous},
                    {"rules", name_of(row.rules)},
                    {"weight_policies", policies_json(row)},
                    {"summary", row.summary},
                    {"needs", row.needs}});
  }
  if (shell.json) {
    std::cout << dump_json(json);
    return;
  }
  std::cout << table.text() << "\nK workers, M micro-batches per update, v stages per worker\n";
}

}  // namespace

void add_schedules(const cli::Command& app, cli::Shell& shell) {
  cli::add_command(app, shell, "schedules", "list the schedules", kSchedules, schedules,
                   {"pp-plan schedules", "pp-plan schedules --markdown",
                    "pp-plan simulate --schedule interleaved --stages 4 --micro-batches 8 --chunks 2"});
}

}  // namespace pp::plan_tool
