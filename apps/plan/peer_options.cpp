#include "apps/plan/peer_options.h"

#include "apps/cli/options.h"
#include "apps/cli/table.h"
#include "apps/plan/tables.h"
#include "libprofile/core/text.h"

namespace pp::plan_tool {

namespace {

constexpr std::string_view kOurs = "pp";

[[noreturn]] void refuse_peer(const std::string& message) { throw Error(ErrorKind::usage, message); }

/// The levels of the cluster in the peers' terms.
std::vector<plan::PeerLevel> peer_levels(const std::string& text) {
  std::vector<plan::PeerLevel> levels;
  for (const LevelSpec& level : parse_levels(text)) {
    if (level.cards > 1)
      refuse_peer("--levels: several network cards are only for --cost-model pp; give one rate");
    levels.push_back({level.count, level.bandwidth});
  }
  return levels;
}

/// `2x8`: two servers of eight devices.
std::vector<plan::PeerLevel> parse_servers(const std::string& text) {
  const std::vector<int> counts = cli::parse_counts(text, 'x', "--servers");
  if (counts.size() != 2)
    refuse_peer("--servers: \"" + text + "\" is not servers x devices; write for example 2x8");
  return {{counts[1], BytesPerSecond(0)}, {counts[0], BytesPerSecond(0)}};
}

std::vector<plan::PeerLevel> machine(const PeerArguments& arguments, const ClusterOptions& cluster) {
  const int given = static_cast<int>(cluster.devices > 0) + static_cast<int>(!cluster.levels.empty()) +
                    static_cast<int>(!arguments.servers.empty());
  if (given > 1) refuse_peer("--devices, --levels and --servers describe one machine; give one of them");
  if (!cluster.file.empty())
    refuse_peer("a peer's cost model reads no --cluster; give --devices, --levels or --servers");
  if (!cluster.levels.empty()) return peer_levels(cluster.levels);
  if (!arguments.servers.empty()) return parse_servers(arguments.servers);
  if (cluster.devices == 0) return {};
  return {{cluster.devices, cluster.bandwidth}};
}

plan::PeerStrategy parse_strategy(const std::string& strategy, const std::string& model) {
  if (strategy == "auto") return plan::PeerStrategy::automatic;
  // Of pipedream-code and pipedream-paper also what they have in common.
  if (strategy.empty() || strategy == model || strategy == model.substr(0, model.find('-')))
    return plan::PeerStrategy::released;
  refuse_peer("--strategy " + strategy + " does not go with --cost-model " + model + "; use auto or " + model);
}

void refuse_foreign(const PeerArguments& arguments, const ClusterOptions& cluster, const std::string& model) {
  const bool pipedream = model.starts_with("pipedream-");
  const auto belongs = [&](bool given, const char* option, bool allowed, const char* models) {
    if (given && !allowed) refuse_peer(std::string(option) + " belongs to --cost-model " + models);
  };
  belongs(!arguments.machines.empty(), "--machines", pipedream, "pipedream-code or pipedream-paper");
  belongs(arguments.no_activation_cost, "--no-activation-cost", pipedream, "pipedream-code or pipedream-paper");
  belongs(!cluster.levels.empty(), "--levels", pipedream || model == kOurs,
          "pp, pipedream-code or pipedream-paper");
  belongs(!arguments.servers.empty(), "--servers", model == "dapple", "dapple");
  belongs(arguments.micro_batches_in_batch != 1, "--micro-batches-in-batch", model == "piper", "piper");
}

constexpr auto kPeer =
    options(option<&PeerArguments::cost_model>(
                "--cost-model", "pp (ours), or a peer's for comparison",
                {.group = "Peers", .value = "NAME", .values = all_names<plan::PeerModel>}),
            option<&PeerArguments::machines>("--machines", "pipedream-*: exactly or at-most; default exactly",
                                             {.value = "RULE"}),
            option<&PeerArguments::no_activation_cost>("--no-activation-cost",
                                                       "pipedream-*: activations cross cuts for free"),
            option<&PeerArguments::servers>("--servers", "dapple: servers x devices, 2x8", {.value = "SxD"}),
            option<&PeerArguments::micro_batches_in_batch>(
                "--micro-batches-in-batch", "piper: replicas of a stage divide it", {.least = 1}));

}  // namespace

void add_peer_options(const cli::Command& command, PeerArguments& arguments) {
  cli::add_options(command, kPeer, arguments);
}

std::optional<plan::PeerOptions> peer_options(const PeerArguments& arguments, const std::string& strategy,
                                              const ClusterOptions& cluster, const plan::PlanRequest& request) {
  refuse_foreign(arguments, cluster, arguments.cost_model);
  if (arguments.cost_model == kOurs) return std::nullopt;
  plan::PeerOptions options;
  const auto model = find_enum<plan::PeerModel>(arguments.cost_model);
  if (!model) {
    std::vector<std::string> names = all_names<plan::PeerModel>();
    names.emplace(names.begin(), kOurs);
    refuse_peer("--cost-model: " + unknown_name(arguments.cost_model, names));
  }
  options.model = *model;
  options.strategy = parse_strategy(strategy, arguments.cost_model);
  options.levels = machine(arguments, cluster);
  if (!arguments.machines.empty())
    options.machines = typed_name<plan::MachinesRule>(arguments.machines, "--machines");
  if (arguments.no_activation_cost) options.activation_compression.reset();
  options.memory_limit = request.memory_limit;
  options.micro_batches_in_batch = arguments.micro_batches_in_batch;
  options.mini_batch = request.mini_batch;
  return options;
}

std::string peer_plan_text(const plan::PeerPlan& plan, Seconds elapsed) {
  cli::Table table({{"stage"}, {"layers"}, {"from .. to", cli::Align::left}, {"replicas"}, {"compute ms"}});
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const plan::PeerStage& stage = plan.stages[s];
    const std::string range =
        stage.layers.size() > 1 ? stage.layers.front() + " .. " + stage.layers.back() : stage.layers.front();
    table.add({std::to_string(s), std::to_string(stage.layers.size()), range,
               std::to_string(stage.replicas) +
                   (stage.tensor_degree > 1 ? " of " + std::to_string(stage.tensor_degree) + " devices" : ""),
               cli::cell(1e3 * stage.compute.count())});
  }
  const double gap = plan.lower_bound > Seconds() ? plan.objective / plan.lower_bound - 1 : 0;
  std::string text = plan.profile + " under the cost model " + std::string(name_of(plan.options.model)) + " (" +
                     std::string(name_of(plan.options.strategy)) +
                     "): " + counted(std::ssize(plan.stages), "stage") + ", replicas " +
                     plan::replicas_text(plan) + ", " + counted(plan::device_count(plan.options), "device") +
                     "\n\n" + table.text() + '\n';
  if (plan.copies > 1) text += std::to_string(plan.copies) + " copies of the whole pipeline\n";
  return text + "objective " + to_text(plan.objective) + ", lower bound " + to_text(plan.lower_bound) +
         ", gap " + cli::percent(gap) + "  (" + plan.search + "; " + to_text(elapsed) + ")\n";
}

}  // namespace pp::plan_tool
