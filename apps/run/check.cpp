// pp-run check: everything that training would refuse, without training; with --warm also what its workers
// exchange, tried and timed.
#include <algorithm>
#include <array>
#include <cstdint>
#include <iostream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apps/cli/options.h"
#include "apps/cli/output.h"
#include "apps/cli/progress.h"
#include "apps/cli/table.h"
#include "apps/run/commands.h"
#include "apps/run/ranks.h"
#include "apps/run/run_options.h"
#include "libprofile/core/text.h"

namespace pp::run_tool {

namespace {

struct CheckOptions : PlanAndOptions {
  bool program = false;
  bool warm = false;
  std::string output;
};

constexpr auto kCheck = options(
    option<&CheckOptions::program>("--program", "print what each worker runs, instruction by instruction"),
    option<&CheckOptions::warm>("--warm",
                                "join all workers, as mpirun starts them, and try and time each kind of "
                                "message and sum between them; without --data"),
    option<&CheckOptions::output>("-o,--output", "with --warm: write what was measured; - for stdout",
                                  {.value = "FILE"}));

void check(const CheckOptions& options, const cli::Shell& shell) {
  if (options.run.data.empty())
    throw Error(ErrorKind::usage, "--data is required without --warm; see pp-run check --help");
  const plan::Plan plan = load(options.files);
  run::RunOptions settings = options.run;
  if (!settings.steps && !settings.epochs && settings.resume.empty()) settings.epochs = 1;
  std::vector<std::string> warnings;
  std::vector<std::string> programs;
  with_context(cli::input_name(options.files.plan), [&] {
    warnings = run::check(plan, settings);
    if (options.program) programs = run::programs(plan, settings);
  });
  for (const std::string& warning : warnings) cli::warn(warning);
  if (shell.json) {
    Json document{{"plan_hash", plan::plan_hash(plan)}, {"ok", true}};
    if (options.program) document["programs"] = programs;
    std::cout << dump_json(document);
  } else {
    std::cout << cli::input_name(options.files.plan) << ": can run (" << plan.schedule.name << ", "
              << counted(std::ssize(plan.stages), "stage") << ", "
              << counted(std::ssize(plan.workers), "worker") << ")\n";
    for (std::size_t w = 0; w < programs.size(); ++w) std::cout << "\nworker " << w << "\n" << programs[w];
  }
}

const run::WarmDevice& fullest(const run::WarmReport& report) {
  const auto room = [](const run::WarmDevice& one) {
    return one.memory == Bytes(0) ? std::numeric_limits<std::int64_t>::max()
                                  : (one.memory - one.needed()).value;
  };
  return *std::ranges::min_element(report.devices, {}, room);
}

/// Whole MiB that hold what communicators took of any device.
Bytes context_memory(const run::WarmReport& report) {
  constexpr std::int64_t kMiB = 1 << 20;
  std::int64_t most = 0;
  for (const run::WarmDevice& one : report.devices) most = std::max(most, one.taken.value);
  return Bytes((most + kMiB - 1) / kMiB * kMiB);
}

std::vector<std::string> timed_cells(const run::WarmExchange& one) {
  const bool promised = one.promised > Seconds(0);
  return {one.what, pp::to_text(one.bytes), promised ? cli::cell(1e6 * one.promised.count()) : "-",
          cli::cell(1e6 * one.measured.count()), promised ? cli::cell(one.measured / one.promised, 3) : "-"};
}

std::string message_table(const run::WarmReport& report) {
  if (report.messages.empty()) return "";
  cli::Table table({{"from"},
                    {"to"},
                    {"message", cli::Align::left},
                    {"bytes"},
                    {"promised us"},
                    {"measured us"},
                    {"ratio"}});
  for (const run::WarmExchange& one : report.messages) {
    std::vector<std::string> row{std::to_string(number(one.workers[0])),
                                 std::to_string(number(one.workers[1]))};
    for (std::string& cell : timed_cells(one)) row.push_back(std::move(cell));
    table.add(std::move(row));
  }
  return "\n" + table.text();
}

std::string sum_table(const run::WarmReport& report) {
  if (report.sums.empty()) return "";
  cli::Table table({{"workers", cli::Align::left},
                    {"together", cli::Align::left},
                    {"bytes"},
                    {"promised us"},
                    {"measured us"},
                    {"ratio"}});
  for (const run::WarmExchange& one : report.sums) {
    std::string members;
    for (const WorkerId worker : one.workers)
      members += (members.empty() ? "" : ",") + std::to_string(number(worker));
    std::vector<std::string> row{members};
    for (std::string& cell : timed_cells(one)) row.push_back(std::move(cell));
    table.add(std::move(row));
  }
  return "\n" + table.text();
}

std::string memory_table(const run::WarmReport& report) {
  const auto known = [](Bytes bytes) { return bytes == Bytes(0) ? "-" : pp::to_text(bytes); };
  cli::Table table({{"device", cli::Align::left}, {"peak"}, {"communicators"}, {"together"}, {"memory"}});
  for (const run::WarmDevice& one : report.devices)
    table.add(
        {one.name, known(one.peak), pp::to_text(one.taken), pp::to_text(one.needed()), known(one.memory)});
  return "\n" + table.text();
}

/// Whether the plan fits with what communicators take, and how plans count that.
std::string verdict(const run::WarmReport& report) {
  const run::WarmDevice& one = fullest(report);
  const std::string needed = pp::to_text(one.needed());
  std::string text = "\nthe plan says of no device how much it has";
  if (!one.fits()) {
    text = "\ndoes not fit: " + one.name + " has " + pp::to_text(one.memory) + ", the plan's peak of " +
           pp::to_text(one.peak) + " and " + pp::to_text(one.taken) + " of communicators are " + needed;
  } else if (one.memory > Bytes(0)) {
    text = "\nfits: " + one.name + ", the fullest, needs " + needed + " of " + pp::to_text(one.memory);
  }
  return text + "\nto plan with communicators: pp-plan ... --context-memory " +
         std::to_string(context_memory(report).value >> 20) + "MiB\n";
}

Json json_of(const plan::Plan& plan, const run::WarmReport& report) {
  const auto exchanges = [](const std::vector<run::WarmExchange>& all) {
    Json list = Json::array();
    for (const run::WarmExchange& one : all) {
      Json workers = Json::array();
      for (const WorkerId worker : one.workers) workers.push_back(number(worker));
      list.push_back({{"workers", workers},
                      {"what", one.what},
                      {"bytes", one.bytes.value},
                      {"promised_s", one.promised.count()},
                      {"measured_s", one.measured.count()}});
    }
    return list;
  };
  Json devices = Json::array();
  for (const run::WarmDevice& one : report.devices)
    devices.push_back({{"device", one.name},
                       {"peak_bytes", one.peak.value},
                       {"communicator_bytes", one.taken.value},
                       {"memory_bytes", one.memory.value},
                       {"fits", one.fits()}});
  return {{"plan_hash", plan::plan_hash(plan)},
          {"ok", fullest(report).fits()},
          {"ranks", report.ranks},
          {"messages", exchanges(report.messages)},
          {"sums", exchanges(report.sums)},
          {"devices", devices},
          {"context_memory_bytes", context_memory(report).value},
          {"left_out", report.left_out}};
}

void print(const plan::Plan& plan, const run::WarmReport& report, const CheckOptions& options,
           cli::Output& output, cli::Shell& shell) {
  for (const std::string& warning : report.warnings) cli::warn(warning);
  const std::string document = dump_json(json_of(plan, report));
  output.write(document);
  if (!fullest(report).fits()) shell.exit_code = cli::ExitCode::infeasible;
  if (output.is_stdout()) return;
  if (shell.json) {
    std::cout << document;
    return;
  }
  std::cout << cli::input_name(options.files.plan) << ": " << counted(std::ssize(plan.workers), "worker")
            << " on " << counted(report.ranks, "rank") << " have joined (" << plan.schedule.name << ", "
            << counted(std::ssize(plan.stages), "stage") << ")\n"
            << message_table(report) << sum_table(report) << memory_table(report) << verdict(report);
  for (const std::string& what : report.left_out) std::cout << "not tried: " << what << "\n";
}

void warm(const CheckOptions& options, cli::Shell& shell, Ranks& ranks) {
  if (options.program) throw Error(ErrorKind::usage, "--program prints what --warm tries; give one of them");
  ranks.join(10 * options.run.stall_timeout);
  try {
    std::optional<cli::Output> output;
    const plan::Plan plan = ranks.reading([&] {
      if (ranks.first()) output.emplace(options.output);
      return load(options.files);
    });
    const auto work = [&] { return ranks.warm(plan, options.run); };
    const run::WarmReport report =
        ranks.alone() ? with_context(cli::input_name(options.files.plan), work) : work();
    if (ranks.first()) print(plan, report, options, *output, shell);
  } catch (const run::SaidElsewhere& error) {
    shell.exit_code = cli::exit_code_of(error.kind());
  }
}

}  // namespace

void add_check(const cli::Command& app, cli::Shell& shell, Ranks& ranks) {
  auto options = std::make_shared<CheckOptions>();
  const cli::Command command = app.add_subcommand("check", "check plan, data and devices without training");
  add_run_options(command, *options);
  command.option("--data").required(false);
  cli::add_options(command, kCheck, *options);
  static constexpr std::array<std::string_view, 3> kExamples{
      "pp-run check plan.json --data configs/data/digits", "pp-run check plan.json --data synthetic --program",
      "pp-run check --warm plan.json -o warm.json"};
  cli::add_common_options(command, shell, kExamples);
  command.final_callback([options, &shell, &ranks] {
    if (options->warm) return warm(*options, shell, ranks);
    if (!options->output.empty()) throw Error(ErrorKind::usage, "-o is for what --warm measures; add that");
    check(*options, shell);
  });
}

}  // namespace pp::run_tool
