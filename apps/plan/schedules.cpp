// pp-plan schedules: the registry of schedules.
#include <array>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/cli/table.h"
#include "apps/plan/commands.h"
#include "apps/plan/schedule_reference.h"
#include "libplan/schedule/schedule.h"
#include "libprofile/core/json_reader.h"

namespace pp::plan_tool {
namespace {

Json policies_json(const plan::ScheduleRow& row) {
  Json policies = Json::array();
  for (const plan::WeightPolicy policy : row.policies) policies.push_back(name_of(policy));
  return policies;
}

void schedules(const cli::Shell& shell, bool markdown) {
  if (markdown) {
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
  const cli::Command command = app.add_subcommand("schedules", "list the schedules");
  static constexpr std::array<std::string_view, 3> kExamples{
      "pp-plan schedules", "pp-plan schedules --markdown",
      "pp-plan simulate --schedule interleaved --stages 4 --micro-batches 8 --chunks 2"};
  cli::add_common_options(command, shell, kExamples);
  const auto markdown = std::make_shared<bool>(false);
  command.add_flag("--markdown", *markdown, "the reference: what each schedule holds and how long it waits");
  command.final_callback([&shell, markdown] { schedules(shell, *markdown); });
}

}  // namespace pp::plan_tool
