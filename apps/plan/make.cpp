// pp-plan [make] PROFILE: the planner.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/cli/log.h"
#include "apps/cli/options.h"
#include "apps/cli/output.h"
#include "apps/cli/table.h"
#include "apps/plan/commands.h"
#include "apps/plan/peer_options.h"
#include "apps/plan/planning_options.h"
#include "apps/plan/search_clock.h"
#include "apps/plan/tables.h"
#include "libplan/peers/strategy.h"
#include "libplan/report/explain.h"
#include "libplan/report/infeasible.h"
#include "libprofile/core/counted.h"

namespace pp::plan_tool {
namespace {

struct Options {
  std::string profile;
  std::string output;
  ClusterOptions cluster;
  RequestOptions request;
  PeerArguments peer;
  std::string strategy;
  bool explain = false;
};

/// Exit 3: the reason, then what would help.
void report_infeasible(const plan::Infeasible& none, cli::Shell& shell) {
  shell.exit_code = cli::ExitCode::infeasible;
  if (shell.json) {
    Json json{{"feasible", false},
              {"reason", none.reason},
              {"short_by_bytes", none.short_by.value},
              {"remedy", none.remedy}};
    if (none.smallest_limit) json["smallest_memory_limit_bytes"] = none.smallest_limit->value;
    std::cout << dump_json(json);
  }
  std::cerr << shell.tool << ": no feasible plan: " << none.reason << '\n';
  if (!none.remedy.empty()) std::cerr << shell.tool << ": this would fit: " << none.remedy << '\n';
}

/// `a, b and c`
std::string enumeration(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i)
    text.append(i == 0 ? "" : i + 1 == names.size() ? " and " : ", ").append(names[i]);
  return text;
}

/// One line for each way in which the profile is doubtful, whatever the number of places.
void warn_about(const Profile& profile) {
  if (profile.mode == ProfileMode::estimated) {
    cli::warn("the times of the profile are estimated for " + profile.device.name +
              ", not measured; measure with pp-profile run for a plan to rely on");
  } else if (!profile.estimated.empty()) {
    cli::warn("the profile only estimates " + enumeration(profile.estimated) +
              "; measure with pp-profile run for a plan to rely on");
  }
  std::vector<std::string> ratios;
  for (const WholeModelPoint& point : profile.whole_model) {
    const std::optional<double> ratio = layer_sum_ratio(profile, point.micro_batch_size);
    if (ratio && std::abs(*ratio - 1) > 0.10)
      ratios.push_back(cli::cell(*ratio, 3) + " at micro-batch size " + std::to_string(point.micro_batch_size));
  }
  if (!ratios.empty()) {
    cli::warn("the layers of the profile add up to " + enumeration(ratios) +
              " of the whole model; profile again on a quieter machine");
  }
}

void warn_about(const plan::Plan& plan) {
  const int micro_batches = plan.training.micro_batches;
  const int depth = static_cast<int>(plan.stages.size()) / plan.schedule.chunks_per_worker;
  if (!plan::require_schedule(plan.schedule.name).synchronous || micro_batches >= depth) return;
  cli::warn(counted(micro_batches, "micro-batch") + " cannot keep " + std::to_string(depth) +
            " stages busy: the bubble is " + cli::percent(plan.predicted.bubble_fraction) + "; take at least " +
            std::to_string(depth) + ", or fewer stages");
}

void make_peer_plan(const Options& options, const plan::PeerOptions& peer, const Profile& profile,
                    cli::Shell& shell) {
  cli::Output output(options.output);
  const auto begin = std::chrono::steady_clock::now();
  const auto result = plan::plan_as_peer(profile, peer, options.request.request.force_units);
  const Seconds elapsed = std::chrono::steady_clock::now() - begin;
  if (const auto* none = std::get_if<plan::Infeasible>(&result)) return report_infeasible(*none, shell);
  const std::string text = dump_json(plan::to_json(std::get<plan::PeerPlan>(result), elapsed));
  output.write(text);
  if (output.is_stdout()) return;
  std::cout << (shell.json ? text : peer_plan_text(std::get<plan::PeerPlan>(result), elapsed));
}

/// Where --explain has no place to speak: stdout is the plan alone, or the plan is a peer's.
void refuse_mute_explain(const Options& options, const cli::Shell& shell, bool peer) {
  if (peer) throw Error(ErrorKind::usage, "--explain: only for --cost-model pp; leave one of the two out");
  if (options.output == "-" || (shell.json && options.output.empty()))
    throw Error(ErrorKind::usage, "--explain: stdout is the plan alone; write the plan to a file with -o FILE");
}

void print_plan(const plan::Plan& plan, const std::optional<plan::Explanation>& why, const cli::Shell& shell) {
  if (!shell.json) {
    std::cout << plan_text(plan, cli::use_color(shell));
    if (why) std::cout << '\n' << plan::to_text(*why);
    return;
  }
  Json json = plan::to_json(plan);
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

void make(const Options& options, cli::Shell& shell) {
  const Profile profile = cli::load(options.profile, parse_profile);
  const auto peer = peer_options(options.peer, options.strategy, options.cluster, options.request.request);
  if (options.explain) refuse_mute_explain(options, shell, peer.has_value());
  if (peer) return make_peer_plan(options, *peer, profile, shell);
  warn_about(profile);
  const Cluster cluster = load_cluster(options.cluster, profile);
  plan::PlanRequest request =
      plan::narrowed(profile, cluster, to_request(options.request), parse_strategy(options.strategy));
  cli::Output output(options.output);
  Seconds left = options.request.time_limit;
  const auto result =
      timed("planning", left, request, shell, [&] { return plan::make_plan(profile, cluster, request); });
  if (const auto* none = std::get_if<plan::Infeasible>(&result)) return report_infeasible(*none, shell);

  const plan::Plan& plan = std::get<plan::Plan>(result);
  warn_about(plan);
  output.write(dump_json(plan::to_json(plan)));
  if (output.is_stdout()) return;
  std::optional<plan::Explanation> why;
  if (options.explain) {
    why = timed("explaining", left, request, shell,
                [&] { return plan::explain(plan, profile, cluster, request); });
  }
  print_plan(plan, why, shell);
}

}  // namespace

void add_make(const cli::Command& app, cli::Shell& shell) {
  auto options = std::make_shared<Options>();
  const cli::Command command =
      app.add_subcommand("make", "make the best plan for a profile and a machine (the default command)");
  command.add_option("profile", options->profile, "a profile.json").required().type_name("PROFILE");
  command.add_option("-o,--output", options->output, "write the plan; - for stdout").type_name("FILE");
  add_cluster_options(command, options->cluster);
  add_request_options(command, options->request);
  command
      .add_option("--strategy", options->strategy,
                  "under our cost model: " + list_names<plan::Strategy>() +
                      "; under a peer's: its own (the default) or auto")
      .type_name("NAME")
      .group("Search");
  command
      .add_flag("--explain", options->explain,
                "after the table: what decides the step, how sure that is, what would help")
      .group("Search");
  add_peer_options(command, options->peer);
  static constexpr std::array<std::string_view, 3> kExamples{
      "pp-plan profile.json --cluster cluster.json --mini-batch 64 -o plan.json",
      "pp-plan profile.json --devices 4 --bandwidth 10GB/s --mini-batch 64 --stages 4 --schedule gpipe",
      "pp-plan profile.json --cost-model pipedream-code --devices 4 --bandwidth 1e9 --json"};
  cli::add_common_options(command, shell, kExamples);
  command.final_callback([options, &shell] { make(*options, shell); });
}

}  // namespace pp::plan_tool
