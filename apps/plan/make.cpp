// pp-plan [make] PROFILE: the planner.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "apps/cli/options.h"
#include "apps/cli/output.h"
#include "apps/cli/progress.h"
#include "apps/cli/table.h"
#include "apps/plan/commands.h"
#include "apps/plan/peer_options.h"
#include "apps/plan/planning_cases.h"
#include "apps/plan/planning_options.h"
#include "apps/plan/schedule_options.h"
#include "apps/plan/tables.h"
#include "apps/plan/warnings.h"
#include "libplan/answer/make_plan.h"
#include "libplan/answer/remedies.h"
#include "libplan/interop/megatron_arguments.h"
#include "libplan/peers/strategy.h"
#include "libplan/price/expected_step.h"
#include "libplan/report/calibration.h"
#include "libplan/report/explain.h"
#include "libplan/report/machines.h"
#include "libplan/report/what_if.h"

namespace pp::plan_tool {
namespace {

struct MakeOptions {
  std::vector<std::string> profiles;
  std::string output;
  std::string alternatives;  ///< folder
  ClusterOptions cluster;
  RequestOptions request;
  PeerArguments peer;
  std::vector<std::string> reports;
  std::string strategy;
  plan::TrainingBudget budget;
  std::optional<plan::Trainer> trainer;
  bool explain = false;
  bool price = false;  ///< a layout, or arguments: what they say, the rest is as given
  std::optional<plan::MegatronArguments> arguments = {};
};

/// `--memory 12.92GiB, of which 5 % stay free`: the least limit under the option that set it, else as devices
/// have it.
std::string smallest_memory(const plan::Infeasible& none, const MakeOptions& options) {
  const plan::PlanRequest& request = options.request.request;
  if (request.memory_limit) return "--memory-limit " + plan::typed_bytes(none.smallest_limit->value);
  return (options.cluster.file.empty() ? "--memory " : "devices of ") +
         plan::typed_bytes(plan::device_bytes(none.smallest_limit->value, request)) + ", of which " +
         cli::cell(100 * request.reserve, 1) + " % stay free";
}

/// Exit 3: the reason, then what would help.
void report_infeasible(const plan::Infeasible& none, const MakeOptions& options, cli::Shell& shell) {
  shell.exit_code = cli::ExitCode::infeasible;
  if (shell.json) {
    Json json{{"feasible", false},
              {"reason", none.reason},
              {"short_by_bytes", none.short_by.value},
              {"remedy", none.remedy}};
    if (none.smallest_limit) json["smallest_memory_limit_bytes"] = none.smallest_limit->value;
    if (none.cut_short) json["cut_short"] = true;
    std::cout << dump_json(json);
  }
  cli::say(shell.tool, "no feasible plan: " + none.reason);
  if (none.smallest_limit)
    cli::say(shell.tool, (none.cut_short ? "fits, as less may: " : "smallest that fits: ") +
                             smallest_memory(none, options));
  if (!none.remedy.empty()) cli::say(shell.tool, "this would fit: " + none.remedy);
  if (none.cut_short)
    cli::say(shell.tool, "the time limit came before all changes were tried; give it longer with --time-limit");
}

void make_peer_plan(const MakeOptions& options, const plan::PeerOptions& peer, cli::Shell& shell) {
  if (options.profiles.size() > 1)
    throw Error(ErrorKind::usage, "several profiles: only for --cost-model pp; give one");
  for (const auto& [option, given] :
       {std::pair{"--calibrate", !options.reports.empty()},
        std::pair{"--write-alternatives", !options.alternatives.empty()},
        std::pair{"--for", options.trainer.has_value()},
        std::pair{"--profile-of", !options.cluster.profile_of.empty()},
        std::pair{"--price-per-hour, --tokens, --samples", options.budget != plan::TrainingBudget{}}}) {
    if (given)
      throw Error(ErrorKind::usage,
                  std::string(option) + ": only for --cost-model pp; leave one of the two out");
  }
  const Profile profile = cli::load(options.profiles.front(), parse_profile);
  if (group_size(profile) > 1)
    throw Error(ErrorKind::usage, "a profile of groups is only for --cost-model pp; leave one of the two out");
  cli::Output output(options.output);
  const auto begin = std::chrono::steady_clock::now();
  const auto result = plan::plan_as_peer(profile, peer, options.request.request.force_units);
  const Seconds elapsed = std::chrono::steady_clock::now() - begin;
  if (const auto* none = std::get_if<plan::Infeasible>(&result))
    return report_infeasible(*none, options, shell);
  const std::string text = dump_json(plan::to_json(std::get<plan::PeerPlan>(result), elapsed));
  output.write(text);
  if (output.is_stdout()) return;
  std::cout << (shell.json ? text : peer_plan_text(std::get<plan::PeerPlan>(result), elapsed));
}

/// Where --explain has no place to speak: stdout is the plan alone, or the plan is a peer's.
void refuse_mute_explain(const MakeOptions& options, const cli::Shell& shell, bool peer) {
  if (peer) throw Error(ErrorKind::usage, "--explain: only for --cost-model pp; leave one of the two out");
  if (options.output == "-" || (shell.json && options.output.empty()))
    throw Error(ErrorKind::usage, "--explain: stdout is the plan alone; write the plan to a file with -o FILE");
}

void print_plan(const plan::Plan& plan, const plan::TrainingBudget& budget,
                const std::optional<plan::Explanation>& why, const cli::Shell& shell) {
  const plan::Throughput throughput = plan::throughput_of(plan, budget);
  if (!shell.json) {
    std::cout << plan_text(plan, throughput, shell);
    if (why) std::cout << '\n' << plan::to_text(*why);
    return;
  }
  Json json = plan_json(plan, throughput);
  if (why) json["explanation"] = plan::to_json(*why);
  std::cout << dump_json(json);
}

/// What `work` plans for the request, watched; it takes its time off `left`.
template <class Work>
auto timed(const std::string& what, Seconds& left, plan::PlanRequest& request, const cli::Shell& shell,
           const Work& work) {
  SearchClock clock(what, left, shell);
  request.observer = clock.observer();
  auto result = work();
  left = std::max(Seconds(0), left - clock.elapsed());
  return result;
}

plan::PlanRequest request_for(const PlanningCase& one, const MakeOptions& options) {
  plan::PlanRequest request = to_request(options.request, one.profile);
  const auto devices = static_cast<int>(one.cluster.devices.size());
  if (options.arguments) {
    request = plan::request_by(*options.arguments, one.profile, devices, std::move(request));
  } else if (options.price) {
    request = plan::request_by_layout(devices, std::move(request));
  }
  check_memory_limit(request, one.cluster);
  if (options.trainer)
    request = trainer_request(*options.trainer, std::move(request), options.request, one.profile);
  return plan::narrowed(one.profile, one.cluster, request, parse_strategy(options.strategy));
}

/// What only the profile knows of a plan that was made from it.
void complete(plan::Plan& plan, const PlanningCase& one, const plan::PlanRequest& request) {
  plan::add_expected_step(plan, one.profile, request);
  plan.profile_hash = one.hash;
  plan.calibration = one.calibration;
}

plan::MachinePlans plans_for(const PlanningCase& one, const MakeOptions& options, Seconds& left,
                             const cli::Shell& shell) {
  plan::PlanRequest request = request_for(one, options);
  const auto work = [&] { return plan::make_plans(one.profile, one.cluster, request); };
  plan::MachinePlans machine{static_cast<int>(one.cluster.devices.size()),
                             one.profile.device.cores_per_device,
                             one.hash,
                             timed("planning", left, request, shell, work),
                             one.profile.tensor_degree,
                             one.profile.context_parallel.degree,
                             one.profile.expert_parallel.degree,
                             one.profile.shard_group.degree};
  auto* plans = std::get_if<plan::RankedPlans>(&machine.found);
  if (plans == nullptr) return machine;
  complete(plans->best, one, request);
  for (std::size_t i = 0; i < plans->others.size(); ++i) {
    complete(plans->others[i], one, request);
    plans->best.alternatives[i].expected_step = plans->others[i].predicted.expected_step;
  }
  return machine;
}

/// Each profile may take its part of the time.
std::vector<plan::MachinePlans> plans_for(std::span<const PlanningCase> cases, const MakeOptions& options,
                                          Seconds& left, const cli::Shell& shell) {
  if (cases.size() == 1) return {plans_for(cases.front(), options, left, shell)};
  std::vector<plan::MachinePlans> machines;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    Seconds part = left / static_cast<double>(cases.size() - i);
    left -= part;
    machines.push_back(with_context(cli::input_name(cases[i].file),
                                    [&] { return plans_for(cases[i], options, part, shell); }));
    left += part;
  }
  return machines;
}

/// For the alternatives, before the work.
void make_folder(const std::string& folder) {
  if (folder.empty()) return;
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure)
    throw Error(ErrorKind::usage, "--write-alternatives: " + folder + " cannot be made: " + failure.message());
}

/// `alternative-1.json` and so on, in full.
void write_alternatives(const std::vector<plan::Plan>& others, const std::string& folder) {
  if (folder.empty()) return;
  for (std::size_t i = 0; i < others.size(); ++i) {
    const std::string name = "alternative-" + std::to_string(i + 1) + ".json";
    cli::Output(std::filesystem::path(folder) / name).write(dump_json(plan::to_json(others[i])));
  }
}

/// Why the plan is what it is, on the machine that it is for.
plan::Explanation explain(const plan::Plan& plan, std::span<const PlanningCase> cases,
                          const MakeOptions& options, Seconds& left, const cli::Shell& shell) {
  const PlanningCase& chosen = *std::ranges::find(cases, plan.profile_hash, &PlanningCase::hash);
  plan::PlanRequest request = request_for(chosen, options);
  plan::Explanation why = timed("explaining", left, request, shell,
                                [&] { return plan::explain(plan, chosen.profile, chosen.cluster, request); });
  why.calibration = chosen.runs;
  return why;
}

/// As where no plan fits: what the request leaves out and would help.
void hint_at_recompute(const plan::Plan& plan, std::span<const PlanningCase> cases, const MakeOptions& options,
                       Seconds& left, const cli::Shell& shell) {
  const PlanningCase& chosen = *std::ranges::find(cases, plan.profile_hash, &PlanningCase::hash);
  plan::PlanRequest request = request_for(chosen, options);
  const std::optional<Seconds> step = timed("looking at recompute", left, request, shell, [&] {
    return plan::step_with_recompute(plan, chosen.profile, chosen.cluster, request);
  });
  if (step) {
    cli::warn("memory slows this plan down: with --recompute auto a step takes " + to_text(*step) +
              " in place of " + to_text(plan.predicted.step));
  }
}

/// A mini-batch with few divisors leaves equal replicas few choices: one nearby that all devices divide, where
/// samples are at least 5 % faster.
void hint_at_mini_batch(const plan::Plan& plan, std::span<const PlanningCase> cases, const MakeOptions& options,
                        Seconds& left, const cli::Shell& shell) {
  constexpr double kWorthSaying = 1.05;
  const PlanningCase& chosen = *std::ranges::find(cases, plan.profile_hash, &PlanningCase::hash);
  const int devices = static_cast<int>(chosen.cluster.devices.size());
  const auto mini_batch = divisible_mini_batch(plan.training.mini_batch, devices);
  if (!options.trainer || !mini_batch) return;
  plan::PlanRequest request = request_for(chosen, options);
  request.mini_batch = *mini_batch;
  request.micro_batches.reset();
  request.top = 0;
  const auto found = timed("looking at mini-batches", left, request, shell,
                           [&] { return plan::make_plan(chosen.profile, chosen.cluster, request); });
  const auto* other = std::get_if<plan::Plan>(&found);
  if (other == nullptr || other->predicted.samples_per_s < kWorthSaying * plan.predicted.samples_per_s) return;
  const std::int64_t used = std::ssize(plan.workers);
  const std::string idle = used == devices ? ""
                                           : ", and " + std::to_string(used * group_size(plan)) + " of " +
                                                 std::to_string(devices * group_size(plan)) + " GPUs work";
  cli::warn("equal replicas share " + std::to_string(plan.training.mini_batch) + " samples badly" + idle +
            ": with --mini-batch " + std::to_string(*mini_batch) + " a step takes " +
            to_text(other->predicted.step) + " in place of " + to_text(plan.predicted.step));
}

void make(const MakeOptions& options, cli::Shell& shell) {
  const auto peer = peer_options(options.peer, options.strategy, options.cluster, options.request.request);
  if (options.explain) refuse_mute_explain(options, shell, peer.has_value());
  if (peer) return make_peer_plan(options, *peer, shell);
  std::vector<PlanningCase> cases = load_profiles(options.profiles);
  place(cases, options.cluster);
  if (options.arguments) {
    PlanningCase& one = cases.front();
    std::string unread;
    for (const std::string& name : plan::unread_arguments(*options.arguments, one.profile))
      unread += " " + name;
    if (!unread.empty()) cli::inform("not priced:" + unread);
    one.profile = plan::profile_by(*options.arguments, std::move(one.profile));
  }
  if (options.trainer) introduce(*options.trainer, options.request, cases.front().profile);
  plan::check_budget(options.budget, cases.front().profile.model);
  calibrate(cases, options.reports);
  cli::Output output(options.output);
  make_folder(options.alternatives);
  Seconds left = options.request.time_limit;
  const std::vector<plan::MachinePlans> machines = plans_for(cases, options, left, shell);
  warn_about(cases);  // behind all that may refuse the request
  say_of_cards(options.cluster);
  const auto choice = plan::choose_machine(machines, options.request.request.top);
  if (const auto* none = std::get_if<plan::Infeasible>(&choice))
    return report_infeasible(*none, options, shell);

  const auto& [plan, others] = std::get<plan::RankedPlans>(choice);
  warn_about(plan);
  hint_at_recompute(plan, cases, options, left, shell);
  hint_at_mini_batch(plan, cases, options, left, shell);
  output.write(dump_json(plan::to_json(plan)));
  write_alternatives(others, options.alternatives);
  if (output.is_stdout()) return;
  std::optional<plan::Explanation> why;
  if (options.explain) why = explain(plan, cases, options, left, shell);
  print_plan(plan, options.budget, why, shell);
}

/// What a file says, or the arguments.txt and model.txt of an exported folder.
plan::MegatronArguments load_arguments(const std::string& path) {
  if (!std::filesystem::is_directory(path)) return cli::load(path, plan::parse_megatron_arguments);
  plan::MegatronArguments all = load_arguments(path + "/arguments.txt");
  if (std::filesystem::exists(path + "/model.txt")) all.merge(load_arguments(path + "/model.txt"));
  return all;
}

struct PriceOptions : MakeOptions {
  std::string profile;
  std::string pretraining;  ///< of --arguments
};

constexpr auto kPrice =
    options(option<&PriceOptions::profile>("profile", "a profile.json", {.value = "PROFILE", .required = true}),
            option<&PriceOptions::pretraining>("--arguments",
                                               "arguments of pretrain_gpt.py: a file, a launch script without "
                                               "variables, or a folder that pp-plan export wrote",
                                               {.value = "FILE"}));

using Request = plan::PlanRequest;
constexpr auto kLayout = options(
    option<&RequestOptions::layout>("--layout", "or --pipeline-model-parallel-layout alone: Et*3|(tt|)*29,L",
                                    {.value = "STRING"}),
    option<&RequestOptions::request, &Request::micro_batch_size>(
        "--micro-batch-size", "with --layout: samples per micro-batch", {.group = "Training", .least = 1}),
    option<&RequestOptions::request, &Request::chunks_per_worker>(
        "--chunks", "with --layout: stages of each worker", {.group = "Search", .least = 1}));

constexpr auto kMake = options(
    option<&MakeOptions::profiles>(
        "profile",
        "a profile.json; several of one model, on devices of different numbers of cores, in tensor groups of "
        "different degrees or with other --checkpoint: the fastest plan of all wins",
        {.value = "PROFILE", .required = true}),
    option<&MakeOptions::alternatives>(
        "--write-alternatives", "write the alternatives that --top lists as plans: DIR/alternative-1.json, ...",
        {.value = "DIR"}));

constexpr auto kSearched =
    options(option<&MakeOptions::strategy>(
                "--strategy", "how stages are cut; under a peer's cost model its own (the default) or auto",
                {.group = "Search", .value = "NAME", .values = all_names<plan::Strategy>}),
            trainer_option<&MakeOptions::trainer>());

constexpr auto kOutput =
    options(option<&MakeOptions::output>("-o,--output", "write the plan; - for stdout", {.value = "FILE"}));

constexpr auto kSaid =
    options(option<&MakeOptions::explain>(
                "--explain", "after the table: what decides the step, how sure that is, what would help",
                {.group = "Search"}),
            calibrate_option<&MakeOptions::reports>());

void price(PriceOptions options, cli::Shell& shell) {
  options.trainer = plan::Trainer::megatron;
  options.price = true;
  options.request.request.top = 0;
  options.profiles = {options.profile};
  if (options.pretraining.empty() == options.request.layout.empty())
    throw Error(ErrorKind::usage, "what is priced? Give --arguments FILE or --layout STRING");
  if (!options.pretraining.empty()) {
    options.arguments = load_arguments(options.pretraining);
    options.request.optimizer = options.request.precision = std::nullopt;
  }
  make(options, shell);
}

}  // namespace

void add_price(const cli::Command& app, cli::Shell& shell) {
  cli::add_command(app, shell, "price", "the step of Megatron-LM's arguments, or of a layout, as they stand",
                   kPrice, price,
                   {"pp-plan price profile.json --cluster dgx-h100 --arguments launch",
                    "pp-plan price profile.json --cluster dgx-h100 --nodes 4 --arguments pretrain.sh --explain",
                    "pp-plan price profile.json --cluster dgx-h100 --mini-batch 512 --layout 'Et*16|t*16L'"},
                   [](const cli::Command& command, PriceOptions& options) {
                     cli::add_options(command, kOutput, options);
                     add_cluster_options(command, options.cluster);
                     add_mini_batch(command, options.request.request);
                     cli::add_options(command, kLayout, options.request);
                     add_basic_options(command, options.request);
                     cli::add_options(command, kSaid, options);
                     add_budget_options(command, options.budget);
                   });
}

void add_make(const cli::Command& app, cli::Shell& shell) {
  cli::add_command(
      app, shell, "make", "make the best plan for a profile and a machine (the default command)", kMake, make,
      {"pp-plan profile.json --cluster cluster.json --mini-batch 64 -o plan.json",
       "pp-plan profile.json --devices 4 --bandwidth 10GB/s --mini-batch 64 --stages 4 --schedule gpipe",
       "pp-plan profile.json --cost-model pipedream-code --devices 4 --bandwidth 1e9 --json"},
      [](const cli::Command& command, MakeOptions& options) {
        cli::add_options(command, kOutput, options);
        add_cluster_options(command, options.cluster);
        add_request_options(command, options.request);
        cli::add_options(command, kSearched, options);
        cli::add_options(command, kSaid, options);
        add_budget_options(command, options.budget);
        add_peer_options(command, options.peer);
      });
}

}  // namespace pp::plan_tool
