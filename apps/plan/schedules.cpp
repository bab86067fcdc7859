// pp-plan schedules: the registry of schedules.
#include <array>
#include <iostream>

#include "apps/cli/table.h"
#include "apps/plan/commands.h"
#include "libplan/schedule/schedule.h"
#include "libprofile/core/json_reader.h"

namespace pp::plan_tool {
namespace {

void schedules(const cli::Shell& shell) {
  cli::Table table({{"schedule", cli::Align::left},
                    {"kind", cli::Align::left},
                    {"weights", cli::Align::left},
                    {"summary", cli::Align::left},
                    {"needs", cli::Align::left}});
  Json json = Json::array();
  for (const plan::ScheduleRow& row : plan::schedule_table()) {
    const std::string kind = row.synchronous ? "sync" : "async";
    const std::string policy(name_of(row.default_policy()));
    table.add({std::string(row.name), kind, policy, std::string(row.summary),
               row.needs.empty() ? "-" : std::string(row.needs)});
    json.push_back({{"name", row.name},
                    {"synchronous", row.synchronous},
                    {"weight_policy", policy},
                    {"summary", row.summary},
                    {"needs", row.needs}});
  }
  std::cout << (shell.json ? dump_json(json) : table.text());
}

}  // namespace

void add_schedules(CLI::App& app, cli::Shell& shell) {
  CLI::App* command = app.add_subcommand("schedules", "list the schedules");
  static constexpr std::array<std::string_view, 3> kExamples{
      "pp-plan schedules", "pp-plan schedules --json",
      "pp-plan profile.json --schedule 1f1b --mini-batch 64 --devices 2"};
  cli::add_common_options(*command, shell, kExamples);
  command->final_callback([&shell] { schedules(shell); });
}

}  // namespace pp::plan_tool
