// The options of a planning request, shared by pp-plan's commands.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/cli/shell.h"
#include "libplan/peers/strategy.h"
#include "libplan/report/throughput.h"
#include "libplan/search/planner.h"
#include "libprofile/core/options.h"

namespace pp::plan_tool {

struct ClusterOptions {
  std::string file;  ///< --cluster
  int devices = 0;   ///< --devices, without a file
  BytesPerSecond bandwidth{0};
  std::string levels;  ///< --levels, in place of both
  Seconds latency{};
  Bytes memory{0};                      ///< of each device; 0: that of the profile's device
  int nodes = 0;                        ///< copies of the first node; 0: as many as there are
  std::vector<std::string> profile_of;  ///< NAME=FILE
  bool operator==(const ClusterOptions&) const = default;
};

void add_cluster_options(const cli::Command& command, ClusterOptions& options);
/// The same for a command with its own `--devices` and `--nodes`.
void add_machine_options(const cli::Command& command, ClusterOptions& options);
/// `8@300GB/s,2@4x25GB/s`: two nodes of eight devices, innermost first, each with four network cards of 25
/// GB/s. Throws pp::Error (usage).
std::vector<LevelSpec> parse_levels(const std::string& text);
/// Informs where --levels has the devices of a node share one network card, which few machines do.
void say_of_cards(const ClusterOptions& options);
/// The cluster of the file, of the levels, or so many equal devices of the profile's kind, with as many nodes
/// as asked for. Throws pp::Error (usage) when none or several are given. As with_devices_of() the profile.
Cluster load_machine(const ClusterOptions& options, const Profile& profile);

/// Throws pp::Error (usage) for a limit above what a device has, which no plan could fill.
void check_memory_limit(const plan::PlanRequest& request, const Cluster& cluster);
/// The machine in CPU devices of as many cores as the profiled one has: neighbours are joined
/// (with_wider_devices()). Devices that leave their cores open have `open_cores`. Another machine than of CPU
/// devices stays as it is. Throws pp::Error (usage) when its devices cannot be joined to such.
Cluster with_devices_of(const Cluster& cluster, const ProfiledDevice& device, int open_cores);

/// Everything of a PlanRequest that people choose; `cuts`, `replicas` and `windows` as text until parsed.
struct RequestOptions {
  plan::PlanRequest request;
  std::string micro_batches = "auto";
  std::string cuts, layout;
  std::string replicas;
  std::string window = "auto";
  int threads = 0;  ///< 0: one per core
  Seconds time_limit{600};
  std::optional<cli::Option> optimizer, precision;  ///< which may have been left to their defaults
};

/// --price-per-hour, --tokens, --samples.
void add_budget_options(const cli::Command& command, plan::TrainingBudget& budget);

/// What --threads is without being given: one per core.
int default_threads();

/// --mini-batch.
void add_mini_batch(const cli::Command& command, plan::PlanRequest& request);
/// What every planning command takes: mini-batch, optimizer, memory, what to accept of a profile.
void add_basic_options(const cli::Command& command, RequestOptions& options);
/// --strategy: a name, or empty. Throws pp::Error (usage) for an unknown one.
plan::Strategy parse_strategy(const std::string& name);
/// --window: a rule's name, or the counts of an explicit one. Throws pp::Error (usage).
std::pair<plan::WindowRule, std::vector<int>> parse_window(const std::string& text);
/// How stages, replicas and weights may lie: what every search takes beside its schedules and micro-batches.
void add_shape_options(const cli::Command& command, RequestOptions& options);
/// --calibrate, for calibrate(): of the reports that `reports` are.
template <auto reports>
constexpr auto calibrate_option() {
  return option<reports>(
      "--calibrate",
      "a report.json of pp-run: times of the layers, and for a plan speeds of the devices, as "
      "it measured them; of several the median counts",
      {.group = "Profile", .value = "REPORT"});
}
/// All of these, and what a single plan is asked for.
void add_request_options(const cli::Command& command, RequestOptions& options);
/// `profile`: for --cuts even. Throws pp::Error (usage).
plan::PlanRequest to_request(const RequestOptions& options, const Profile& profile);

}  // namespace pp::plan_tool
