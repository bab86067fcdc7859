// pp-plan [make] PROFILE: the planner.
#include <spdlog/spdlog.h>

#include <array>
#include <chrono>
#include <cmath>
#include <iostream>
#include <memory>

#include "apps/cli/options.h"
#include "apps/cli/output.h"
#include "apps/plan/commands.h"
#include "apps/plan/planning_options.h"
#include "apps/plan/tables.h"
#include "libplan/search/pipedream_code.h"

namespace pp::plan_tool {

enum class CostModel { pp, pipedream_code };

}  // namespace pp::plan_tool

namespace pp {
template <>
struct EnumNames<plan_tool::CostModel> {
  static constexpr std::array table{std::pair{plan_tool::CostModel::pp, "pp"sv},
                                    std::pair{plan_tool::CostModel::pipedream_code, "pipedream-code"sv}};
};
}  // namespace pp

namespace pp::plan_tool {
namespace {

struct Options {
  std::string profile;
  std::string output;
  ClusterOptions cluster;
  RequestOptions request;
  CostModel cost_model = CostModel::pp;
  std::optional<std::string> machines;
  bool no_activation_cost = false;
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

void warn_about(const Profile& profile) {
  for (const std::string& what : profile.estimated) {
    spdlog::warn("the profile only estimates {}; measure with pp-profile run for a plan to rely on", what);
  }
  for (const WholeModelPoint& point : profile.whole_model) {
    const std::optional<double> ratio = layer_sum_ratio(profile, point.micro_batch_size);
    if (ratio && std::abs(*ratio - 1) > 0.10) {
      spdlog::warn(
          "at micro-batch size {} the layers of the profile add up to {:.2f} of the whole model; profile again "
          "on a "
          "quieter machine",
          point.micro_batch_size, *ratio);
    }
  }
}

void make_peer_plan(const Options& options, const Profile& profile, cli::Shell& shell) {
  plan::PipedreamOptions peer;
  peer.machines = options.cluster.devices;
  peer.bandwidth = options.cluster.bandwidth;
  if (options.machines)
    peer.rule = parse_enum<plan::MachinesRule>(*options.machines, "--machines", ErrorKind::usage);
  if (options.no_activation_cost) peer.activation_compression.reset();
  peer.memory_limit = options.request.request.memory_limit;
  const auto begin = std::chrono::steady_clock::now();
  const auto result = plan::plan_pipedream_code(profile, peer);
  const Seconds elapsed = std::chrono::steady_clock::now() - begin;
  if (const auto* none = std::get_if<plan::Infeasible>(&result)) return report_infeasible(*none, shell);
  const std::string text = dump_json(plan::to_json(std::get<plan::PipedreamResult>(result), elapsed));
  cli::Output output(options.output);
  output.write(text);
  if (!output.is_stdout()) std::cout << text;
}

void make(const Options& options, cli::Shell& shell) {
  const Profile profile = cli::load(options.profile, parse_profile);
  if (options.cost_model == CostModel::pipedream_code) return make_peer_plan(options, profile, shell);
  if (options.machines || options.no_activation_cost) {
    throw Error(ErrorKind::usage, "--machines and --no-activation-cost belong to --cost-model pipedream-code");
  }
  warn_about(profile);
  const plan::PlanRequest request = to_request(options.request);
  const Cluster cluster = load_cluster(options.cluster, profile);
  cli::Output output(options.output);
  const auto result = plan::make_plan(profile, cluster, request);
  if (const auto* none = std::get_if<plan::Infeasible>(&result)) return report_infeasible(*none, shell);

  const plan::Plan& plan = std::get<plan::Plan>(result);
  const std::string text = dump_json(plan::to_json(plan));
  output.write(text);
  if (!output.is_stdout()) std::cout << (shell.json ? text : plan_text(plan, cli::use_color(shell)));
}

}  // namespace

void add_make(CLI::App& app, cli::Shell& shell) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("make", "make the best plan for a profile and a machine (the default command)");
  command->add_option("profile", options->profile, "a profile.json")->required()->type_name("PROFILE");
  command->add_option("-o,--output", options->output, "write the plan; - for stdout")->type_name("FILE");
  add_cluster_options(*command, options->cluster);
  add_request_options(*command, options->request);
  cli::add_enum(*command, "--cost-model", options->cost_model, "ours, or a peer's for comparison")
      ->group("Peers");
  command->add_option("--machines", options->machines, "pipedream-code: exactly or at-most; default exactly")
      ->group("Peers");
  command
      ->add_flag("--no-activation-cost", options->no_activation_cost,
                 "pipedream-code: activations cross cuts for free")
      ->group("Peers");
  static constexpr std::array<std::string_view, 3> kExamples{
      "pp-plan profile.json --cluster cluster.json --mini-batch 64 -o plan.json",
      "pp-plan profile.json --devices 4 --bandwidth 10GB/s --mini-batch 64 --stages 4 --schedule gpipe",
      "pp-plan profile.json --cost-model pipedream-code --devices 4 --bandwidth 1e9 --json"};
  cli::add_common_options(*command, shell, kExamples);
  command->final_callback([options, &shell] { make(*options, shell); });
}

}  // namespace pp::plan_tool
