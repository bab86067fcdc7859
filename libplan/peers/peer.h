// `--cost-model NAME`: other planners' cost models, searched as those planners do or exactly, for comparison
// with ours and as a test of the importers. Each model's header names its paper and what is kept of its code.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "libplan/plan/plan.h"
#include "libprofile/core/enum_names.h"
#include "libprofile/core/profile.h"

namespace pp::plan {

enum class PeerModel { pipedream_code, pipedream_paper, dnn_partitioning, piper, dapple };
/// The released PipeDream uses all machines, even where fewer are faster.
enum class MachinesRule { exactly, at_most };
/// `released`: the peer's own search, with its heuristics. `automatic`: ours under the peer's costs, never
/// worse.
enum class PeerStrategy { released, automatic };

}  // namespace pp::plan

namespace pp {
template <>
struct EnumNames<plan::PeerModel> {
  static constexpr std::array table{std::pair{plan::PeerModel::pipedream_code, "pipedream-code"sv},
                                    std::pair{plan::PeerModel::pipedream_paper, "pipedream-paper"sv},
                                    std::pair{plan::PeerModel::dnn_partitioning, "dnn-partitioning"sv},
                                    std::pair{plan::PeerModel::piper, "piper"sv},
                                    std::pair{plan::PeerModel::dapple, "dapple"sv}};
};
template <>
struct EnumNames<plan::MachinesRule> {
  static constexpr std::array table{std::pair{plan::MachinesRule::exactly, "exactly"sv},
                                    std::pair{plan::MachinesRule::at_most, "at-most"sv}};
};
template <>
struct EnumNames<plan::PeerStrategy> {
  static constexpr std::array table{std::pair{plan::PeerStrategy::released, "released"sv},
                                    std::pair{plan::PeerStrategy::automatic, "auto"sv}};
};
}  // namespace pp

namespace pp::plan {

/// One level of a hierarchy: `devices` groups of the level below (single devices at the innermost), joined at
/// `bandwidth`.
struct PeerLevel {
  int devices = 1;
  BytesPerSecond bandwidth{0};
  bool operator==(const PeerLevel&) const = default;
};

/// Which members a model reads: pipedream-* levels, machines, activation_compression, memory_limit;
/// dnn-partitioning one level (its bandwidth is not used), memory_limit; piper one level, memory_limit,
/// micro_batches_in_batch; dapple two levels as `servers of devices` without bandwidths, mini_batch.
struct PeerOptions {
  PeerModel model = PeerModel::pipedream_code;
  PeerStrategy strategy = PeerStrategy::released;
  std::vector<PeerLevel> levels;  ///< innermost first
  MachinesRule machines = MachinesRule::exactly;
  /// Bytes of an activation per byte that is sent; unset: activations cross cuts for free, which is the
  /// released PipeDream's default.
  std::optional<double> activation_compression = 1.0;
  /// Unset: the memory of the profile's device; 0 there: no limit. PipeDream's model tests only what is given.
  std::optional<Bytes> memory_limit = std::nullopt;
  int micro_batches_in_batch = 1;  ///< Piper's mbsInBatch
  int mini_batch = 0;              ///< DAPPLE's global batch, samples
  bool operator==(const PeerOptions&) const = default;
};

/// Product of the levels.
int device_count(const PeerOptions& options);

struct PeerStage {
  std::vector<std::string> layers;
  int replicas = 1;
  Seconds compute{};      ///< of one micro-batch, over the replicas
  int tensor_degree = 1;  ///< Piper: devices that run one replica together
  bool operator==(const PeerStage&) const = default;
};

struct PeerPlan {
  std::string profile;  ///< the model's name
  PeerOptions options;
  std::vector<PeerStage> stages;
  int copies = 1;         ///< DAPPLE: of the whole pipeline; `replicas` of the stages count all of them
  Seconds objective{};    ///< the slowest stage or cut, or DAPPLE's latency
  Seconds lower_bound{};  ///< equal to the objective where the search is exact over all orders of the layers
  std::string search;     ///< what was searched, in words
};

/// Throws pp::Error (usage) for options out of range, for what the model needs and was not given, and for
/// figures that look like another unit unless `force_units`. The profile's first micro-batch size is used.
/// Costs: see the models' headers.
std::variant<PeerPlan, Infeasible> plan_as_peer(const Profile& profile, const PeerOptions& options,
                                                bool force_units = false);

/// Number of layers in front of each cut, in the order in which `stages` list them.
std::vector<int> cuts_of(const PeerPlan& plan);
std::string replicas_text(const PeerPlan& plan);

/// One object: `{"cost_model", "strategy", "model", "devices", "levels", "stages": [{"layers", "replicas",
/// "compute_s"}], "cuts", "replicas": "3-1", "certificate": {"objective_s", "lower_bound_s", "gap", "search"},
/// "search": {"seconds"}}` and the options that the model reads. `elapsed` is what the caller's clock says
/// about plan_as_peer().
Json to_json(const PeerPlan& plan, Seconds elapsed);

}  // namespace pp::plan
