// A profile without a device: every time from FLOPs and bytes at the rates of a device spec, marked as
// estimated. Shapes alone, so that models of any size take milliseconds.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "libprofile/core/profile.h"
#include "libprofile/estimate/device_spec.h"

namespace pp::profile {

/// What runs again in the backward and is not kept: nothing, attention's scores (Korthikanti et al., sec. 5),
/// or all of a block (with_checkpoints()).
enum class Checkpoint { none, attention, blocks };

}  // namespace pp::profile

template <>
struct pp::EnumNames<pp::profile::Checkpoint> {
  static constexpr std::array table{std::pair{profile::Checkpoint::none, "none"sv},
                                    std::pair{profile::Checkpoint::attention, "attention"sv},
                                    std::pair{profile::Checkpoint::blocks, "blocks"sv}};
};

namespace pp::profile {

struct EstimateOptions {
  std::vector<std::int64_t> micro_batch_sizes{1, 2, 4, 8, 16};  ///< ascending
  /// Instead: 1, 2, 4, ... as long as every layer fits the device by itself.
  bool automatic_sizes = false;
  RunType dtype = {};
  /// Devices that share every layer (tensor_split.h).
  int tensor_degree = 1;
  /// Such groups that each have a part of every sample's positions.
  int context_degree = 1;
  /// Members that divide a mixture's experts: several of these groups together, with samples of their own, or
  /// a part of one. `micro_batch_sizes` are of one; the profile's are of all.
  int expert_degree = 1;
  int expert_nodes = 1;  ///< that these are in, equally many in each
  /// Groups of all these, with samples of their own, that share what each layer holds.
  ShardGroup shard_group = {};
  std::optional<double> expert_imbalance = std::nullopt;  ///< in place of the trainer's
  /// Whether they divide norms, dropout and sums by positions.
  bool sequence_parallel = true;
  Checkpoint checkpoint = Checkpoint::none;
  /// Whose steps they are; without a name: of no trainer, with free launches.
  TrainerSpec trainer = {};
  /// Between the members; by default the device's `tensor_link`.
  std::optional<Link> tensor_link = std::nullopt;
  /// Between members with the same weights and other positions; by default as `tensor_link`.
  std::optional<Link> context_link = std::nullopt;
  /// Between members with other experts, of several nodes where they are in some; by default as `tensor_link`.
  std::optional<Link> expert_link = std::nullopt;
  /// Each member of a shard group has it while all send; by default as `tensor_link`.
  std::optional<Link> shard_link = std::nullopt;
};

/// Throws pp::Error: (usage) for a type that the device has no rates for, sizes that do not rise, layers that
/// the degrees cannot divide, experts and shards at once, a group without a link or checkpoints of a model
/// without blocks, (data) for a model with layers that have no arithmetic.
Profile estimate_profile(const ModelGraph& model, const DeviceSpec& device, const EstimateOptions& options);

}  // namespace pp::profile
