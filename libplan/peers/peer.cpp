#include "libplan/peers/peer.h"

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "libplan/peers/dapple.h"
#include "libplan/peers/dnn_partitioning.h"
#include "libplan/peers/pipedream.h"
#include "libplan/peers/piper.h"
#include "libprofile/core/cluster.h"
#include "libprofile/core/text.h"

namespace pp::plan {

namespace {

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorKind::usage, message); }

bool is_pipedream(PeerModel model) {
  return model == PeerModel::pipedream_code || model == PeerModel::pipedream_paper;
}

/// dnn-partitioning's files bring their own transfer times, DAPPLE's planner its own bandwidths.
bool reads_bandwidth(const Profile& profile, PeerModel model) {
  if (model == PeerModel::dapple) return false;
  return model != PeerModel::dnn_partitioning || !profile.layers.front().points.front().transfer;
}

/// DAPPLE's planner places every number of devices, each in turn.
void check_size(const PeerOptions& options) {
  constexpr int kMostPlaced = 1024;
  std::vector<int> counts;
  for (const PeerLevel& level : options.levels) counts.push_back(level.devices);
  checked_device_count(counts, options.model == PeerModel::dapple ? kMostPlaced : kDeviceLimit);
}

/// The recurrence of PipeDream looks at every number of machines for every last stage of every interval; on
/// the outermost level, whose intervals all begin at the first layer, for each end alone.
void check_recurrence(std::int64_t layers, const PeerOptions& options) {
  constexpr double kMost = 1e9;  // two seconds for each order of the layers
  for (std::size_t level = 0; level < options.levels.size(); ++level) {
    const std::int64_t intervals = level + 1 == options.levels.size() ? layers : layers * layers;
    const double machines = options.levels[level].devices;
    const double steps = static_cast<double>(intervals) * machines * machines;
    if (steps <= kMost) continue;
    const auto most = static_cast<std::int64_t>(std::sqrt(kMost / static_cast<double>(intervals)));
    refuse("the cost model " + std::string(name_of(options.model)) + " searches " + counted(layers, "layer") +
           " on at most " + std::to_string(most) + " devices of one level, not " +
           std::to_string(options.levels[level].devices) +
           "; give fewer, or split them over more levels with --levels");
  }
}

void check_levels(const Profile& profile, const PeerOptions& options) {
  const std::string model(name_of(options.model));
  if (options.levels.empty()) refuse("the cost model " + model + " needs a machine; add --devices N");
  const std::size_t most = is_pipedream(options.model)          ? options.levels.size()
                           : options.model == PeerModel::dapple ? 2
                                                                : 1;
  if (options.levels.size() > most) {
    refuse("the cost model " + model + " knows at most " + counted(static_cast<int>(most), "level") + ", not " +
           std::to_string(options.levels.size()) + "; give --devices N, or use pipedream-code");
  }
  for (const PeerLevel& level : options.levels) {
    if (level.devices < 1) refuse("devices = " + std::to_string(level.devices) + "; give at least 1");
    if (reads_bandwidth(profile, options.model) && !(level.bandwidth.value > 0))
      refuse("the cost model " + model + " needs a bandwidth above 0; add --bandwidth RATE");
  }
  check_size(options);
}

void check_options(const Profile& profile, const PeerOptions& options) {
  check_levels(profile, options);
  if (options.activation_compression && !(*options.activation_compression > 0))
    refuse("the activation compression ratio must be above 0");
  if (options.memory_limit && options.memory_limit->value < 1)
    refuse("memory_limit = " + std::to_string(options.memory_limit->value) + " bytes; give at least 1");
  if (options.model == PeerModel::piper && options.micro_batches_in_batch < 1) {
    refuse("micro_batches_in_batch = " + std::to_string(options.micro_batches_in_batch) + "; give at least 1");
  }
}

void check_units(const Profile& profile, const PeerInput& input, const PeerOptions& options) {
  const double sample = input.total_compute() / static_cast<double>(profile.micro_batch_sizes.front());
  if (sample < 1e-9 || sample > 1e3) {
    refuse("the profile's forward and backward time of one sample is " + pp::to_text(Seconds(sample)) +
           ", outside 1e-9..1e3 s: not seconds? Allow it with --force-units");
  }
  if (!reads_bandwidth(profile, options.model)) return;
  for (const PeerLevel& level : options.levels) {
    if (level.bandwidth >= kSmallestBandwidth && level.bandwidth <= kLargestBandwidth) continue;
    refuse("bandwidth " + pp::to_text(level.bandwidth) +
           " is outside 1e6..1e13 bytes per second: another unit? Allow it with --force-units");
  }
}

void add_options(Json& json, const PeerOptions& options) {
  json["devices"] = device_count(options);
  json["levels"] = Json::array();
  for (const PeerLevel& level : options.levels) {
    Json one{{"devices", level.devices}};
    if (level.bandwidth.value > 0) one["bandwidth_bytes_per_s"] = level.bandwidth.value;
    json["levels"].push_back(one);
  }
  if (options.model == PeerModel::pipedream_code || options.model == PeerModel::pipedream_paper) {
    json["machines"] = name_of(options.machines);
    json["activation_cost"] = options.activation_compression.has_value();
  }
  if (options.model == PeerModel::piper) json["micro_batches_in_batch"] = options.micro_batches_in_batch;
  if (options.model == PeerModel::dapple) json["mini_batch"] = options.mini_batch;
  if (options.memory_limit) json["memory_limit_bytes"] = options.memory_limit->value;
}

}  // namespace

int device_count(const PeerOptions& options) {
  int count = 1;
  for (const PeerLevel& level : options.levels) count *= level.devices;
  return count;
}

std::variant<PeerPlan, Infeasible> plan_as_peer(const Profile& profile, const PeerOptions& options,
                                                bool force_units) {
  const PeerInput input = peer_input(profile);
  check_options(profile, options);
  if (is_pipedream(options.model)) check_recurrence(input.size(), options);
  if (!force_units) check_units(profile, input, options);
  switch (options.model) {
    case PeerModel::pipedream_code:
    case PeerModel::pipedream_paper: return plan_pipedream(input, options);
    case PeerModel::dnn_partitioning: return plan_dnn_partitioning(input, options);
    case PeerModel::piper: return plan_piper(input, options);
    case PeerModel::dapple: return plan_dapple(input, options);
  }
  throw Error(ErrorKind::internal, "unknown cost model");
}

std::vector<int> cuts_of(const PeerPlan& plan) {
  std::vector<int> cuts;
  std::size_t layers = 0;
  for (const PeerStage& stage : plan.stages) {
    layers += stage.layers.size();
    cuts.push_back(static_cast<int>(layers));
  }
  cuts.pop_back();
  return cuts;
}

std::string replicas_text(const PeerPlan& plan) {
  std::string text;
  for (const PeerStage& stage : plan.stages) {
    text.append(text.empty() ? "" : "-").append(std::to_string(stage.replicas));
  }
  return text;
}

Json to_json(const PeerPlan& plan, Seconds elapsed) {
  Json json{{"cost_model", name_of(plan.options.model)},
            {"strategy", name_of(plan.options.strategy)},
            {"model", plan.profile}};
  add_options(json, plan.options);
  json["stages"] = Json::array();
  for (const PeerStage& stage : plan.stages) {
    json["stages"].push_back(
        {{"layers", stage.layers}, {"replicas", stage.replicas}, {"compute_s", stage.compute.count()}});
    if (plan.options.model == PeerModel::piper) json["stages"].back()["tensor_degree"] = stage.tensor_degree;
  }
  if (plan.copies > 1) json["copies"] = plan.copies;
  json["cuts"] = cuts_of(plan);
  json["replicas"] = replicas_text(plan);
  const double gap = plan.lower_bound > Seconds() ? plan.objective / plan.lower_bound - 1 : 0;
  json["certificate"] = {{"objective_s", plan.objective.count()},
                         {"lower_bound_s", plan.lower_bound.count()},
                         {"gap", gap},
                         {"search", plan.search}};
  json["search"] = {{"seconds", elapsed.count()}};
  return json;
}

}  // namespace pp::plan
