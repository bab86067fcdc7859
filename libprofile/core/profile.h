// The profile as a value (document pp.profile): per layer and micro-batch size times and bytes, the whole
// model as a cross-check, optimizer costs and the line through them. Times are of one micro-batch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "libprofile/core/enum_names.h"
#include "libprofile/core/index.h"
#include "libprofile/core/json_reader.h"
#include "libprofile/core/kernel_choice.h"
#include "libprofile/core/model/model_graph.h"
#include "libprofile/core/trainer.h"
#include "libprofile/core/units.h"

namespace pp {

enum class DeviceKind { cpu, cuda };
template <>
struct EnumNames<DeviceKind> {
  static constexpr std::array table{std::pair{DeviceKind::cpu, "cpu"sv}, std::pair{DeviceKind::cuda, "cuda"sv}};
};

/// `estimated`: by arithmetic from the figures of a device (libprofile/estimate).
enum class ProfileMode { in_place, isolated, imported, estimated };
template <>
struct EnumNames<ProfileMode> {
  static constexpr std::array table{
      std::pair{ProfileMode::in_place, "in_place"sv}, std::pair{ProfileMode::isolated, "isolated"sv},
      std::pair{ProfileMode::imported, "imported"sv}, std::pair{ProfileMode::estimated, "estimated"sv}};
};

/// A measured time. `low` and `high` are the 16th and 84th percentile; samples = 0 means imported or
/// estimated, without spread.
struct TimeStat {
  Seconds median{};
  Seconds low{};
  Seconds high{};
  std::int64_t samples = 0;
  bool operator==(const TimeStat&) const = default;
};

/// A layer's times under conditions other than those of its point. Without samples, as older documents have
/// them, they are medians alone.
struct LayerTimes {
  TimeStat forward, backward, input_gradient, weight_gradient;
  bool operator==(const LayerTimes&) const = default;
};
LayerTimes without_spread(Seconds forward, Seconds backward, Seconds input_gradient, Seconds weight_gradient);

struct LayerPoint {
  std::int64_t micro_batch_size = 1;
  bool out_of_memory = false;  ///< then only the size is meaningful
  TimeStat forward, backward;
  std::optional<TimeStat> input_gradient, weight_gradient;  ///< absent: backward was never split (imported)
  /// Of the first micro-batch after an update: weights and gradients have left the caches, and the weight
  /// gradient is written where later ones are added. Absent: not measured.
  std::optional<LayerTimes> first = std::nullopt;
  /// While each of the devices holds a part of the model, as in a pipeline, in place of the whole, as replicas
  /// do. Absent: not measured.
  std::optional<LayerTimes> in_part = std::nullopt;
  /// On one device, with the whole model, while the others idle. Absent: not measured.
  std::optional<LayerTimes> alone = std::nullopt;
  Bytes output;
  Bytes saved;  ///< saved activations: kept for backward, parameters excluded, each storage at the first layer
                ///< that keeps it
  Bytes saved_input;  ///< the part of `saved` that is the layer's own input
  Bytes workspace;    ///< transient memory: peak above inputs, outputs and saved
  /// Deferred weight-gradient bytes: kept between the halves of a split backward, whoever made them. Absent:
  /// not measured.
  std::optional<Bytes> waiting = std::nullopt;
  /// Imported from dnn-partitioning: what moving its output, and the gradients of its inputs, takes once.
  std::optional<Seconds> transfer = std::nullopt, gradient_transfer = std::nullopt;
  bool operator==(const LayerPoint&) const = default;
};

/// One way to run a layer in Piper's terms: `time` forward and backward together, `saved` for each micro-batch
/// in flight, `fixed` once.
struct PiperVariant {
  Seconds time{};
  Bytes saved;
  Bytes fixed;
  bool operator==(const PiperVariant&) const = default;
};

/// What a device costs when `degree` of them share each micro-batch of the layer, by splitting its tensors.
struct PiperShare {
  int degree = 2;
  Bytes parameters;
  PiperVariant plain;
  std::optional<PiperVariant> recompute;
  std::map<std::string, Bytes> incoming;  ///< charged for each edge at this end, by producer
  std::map<std::string, Bytes> outgoing;  ///< the same, by reader
  bool operator==(const PiperShare&) const = default;
};

/// What Piper's files say of a layer and no other field holds. Only Piper's cost model reads it.
struct PiperLayer {
  PiperVariant plain;
  std::optional<PiperVariant> recompute;
  std::map<std::string, Bytes> incoming;  ///< charged for each edge at this end, by producer
  std::map<std::string, Bytes> outgoing =
      {};                               ///< the same, by reader; where absent, what that reader is charged
  std::vector<PiperShare> tensor = {};  ///< ascending degrees, from 2 on
  bool operator==(const PiperLayer&) const = default;
};

struct LayerProfile {
  std::string name;
  std::int64_t parameter_count = 0;
  Bytes parameters;
  Bytes buffers;
  Flops forward_flops_per_sample;
  std::vector<LayerPoint> points;  ///< ascending in micro_batch_size, the profile's sizes
  std::optional<PiperLayer> piper = std::nullopt;
  std::optional<Bytes> trained = std::nullopt;  ///< the part of `parameters` that is trained; absent: all of it
  Bytes experts{};  ///< the trained part that members of a group have of other experts (ExpertGroup)
  bool operator==(const LayerProfile&) const = default;
};

inline Bytes trained_bytes(const LayerProfile& layer) { return layer.trained.value_or(layer.parameters); }
/// Of layer `index` of the model: fills parameter count and bytes.
void set_parameters(LayerProfile& layer, const ResolvedModel& model, int index, DType dtype);

struct WholeModelPoint {
  std::int64_t micro_batch_size = 1;
  TimeStat forward, backward;
  Bytes peak;
  bool operator==(const WholeModelPoint&) const = default;
};

/// One update of the parameters of some of the model's layers.
struct UpdatePoint {
  Bytes parameters;
  TimeStat update;
  bool operator==(const UpdatePoint&) const = default;
};

/// Bytes of optimizer state per byte of parameters; adam has 2.
inline constexpr double kLargestStateRatio = 1000;

struct OptimizerProfile {
  std::string name;
  double state_bytes_per_parameter_byte = 0;
  TimeStat update;  ///< of all parameters of the model, on all devices at once
  Bytes parameters;
  /// Of stretches of the layers, as stages hold them, while other devices idle; empty: not measured.
  std::vector<UpdatePoint> parts = {};
  /// Of what one device of a pipeline holds, or of all parameters, into other memory, as where passes hold the
  /// weights before. Nothing: not measured.
  std::optional<UpdatePoint> new_version = std::nullopt;
  bool operator==(const OptimizerProfile&) const = default;
};

/// What a run takes for one operation beside its layers: finding its data, handing tensors on, keeping the
/// books. `forward`: F and R; `backward`: B, I and W.
struct OperationOverhead {
  TimeStat forward, backward;
  bool operator==(const OperationOverhead&) const = default;
};

struct ProfiledDevice {
  DeviceKind kind = DeviceKind::cpu;
  std::string name;
  int cores_per_device = 1;
  int devices_busy = 1;
  Bytes memory;
  /// Peak of products in the profile's type, FLOPs per second of one device; nothing: not known.
  std::optional<double> peak_flops_per_s = std::nullopt;
  bool operator==(const ProfiledDevice&) const = default;
};

/// Devices that have a part of the positions of every sample each, and the same weights (Megatron-LM's context
/// parallelism; Liu et al., Ring Attention, 2023).
struct ContextGroup {
  int degree = 1;
  double sum_s_per_byte = 0;  ///< of gradients, for their sum over the members: what no backward hides
  bool operator==(const ContextGroup&) const = default;
};

/// Devices that have a part of a mixture's experts each and send tokens to each other (Lepikhin et al., GShard,
/// 2020). Beyond a tensor and context group its members have samples of their own.
struct ExpertGroup {
  int degree = 1;
  double sum_s_per_byte = 0;         ///< as ContextGroup's, over all members: of all weights but the experts'
  double expert_sum_s_per_byte = 0;  ///< of experts, over the members that have the same
  bool operator==(const ExpertGroup&) const = default;
};

/// What the members of a ShardGroup divide: weights, gradients and the optimizer's state (PyTorch's
/// FULL_SHARD), or only the latter two, so that the backward finds the weights that the forward gathered
/// (SHARD_GRAD_OP).
enum class Sharding { full, gradients };
template <>
struct EnumNames<Sharding> {
  static constexpr std::array table{std::pair{Sharding::full, "full"sv},
                                    std::pair{Sharding::gradients, "gradients"sv}};
};

/// Groups with samples of their own, as replicas have, whose members hold a part of every layer each and gather
/// the others' before they compute it (Rajbhandari et al., ZeRO, 2020, sec. 5.3; Zhao et al., PyTorch FSDP,
/// 2023). Their waits are part of the layers' times.
struct ShardGroup {
  int degree = 1;
  Sharding sharding = Sharding::full;
  bool operator==(const ShardGroup&) const = default;
};

struct Profile {
  Context context;
  ModelGraph model;
  std::string model_hash;
  ProfiledDevice device;
  DType dtype = DType::float32;
  std::optional<NarrowType> products = std::nullopt;  ///< of blocks, where theirs is a narrower type
  MemoryFormat memory_format = MemoryFormat::contiguous;
  std::optional<Autocast> autocast = std::nullopt;  ///< forwards ran under it; weights are float32 then
  ProfileMode mode = ProfileMode::in_place;
  /// Devices that share every layer by splitting its tensors (Shoeybi et al., Megatron-LM, 2019, sec. 3). Times
  /// are of the group, its communication included; bytes, parameters and FLOPs those of one member.
  int tensor_degree = 1;
  ContextGroup context_parallel = {};                 ///< such groups, told likewise
  ExpertGroup expert_parallel = {};                   ///< of a mixture of experts in a group
  ShardGroup shard_group = {};                        ///< several of all these
  std::optional<TrainerSpec> trainer = std::nullopt;  ///< whose steps are estimated
  std::vector<std::int64_t> micro_batch_sizes;        ///< ascending
  std::vector<LayerProfile> layers;                   ///< one per layer of the model, same order
  std::optional<LayerProfile> loss;                   ///< the virtual last layer, when the model has a loss
  std::vector<WholeModelPoint> whole_model;
  std::vector<OptimizerProfile> optimizers;
  std::optional<OperationOverhead> operation_overhead = std::nullopt;
  std::vector<KernelChoice> kernels = {};  ///< with which all of it was measured; by key
  /// What is not measured but assumed: `input_gradient_s` (backward not split), `saved_bytes`, `batch_size`; of
  /// an estimated profile all times.
  std::vector<std::string> estimated;
  std::vector<Profile> others = {};  ///< of further kinds of devices (Device::profile); in no document

  const Profile& of_kind(int kind) const { return kind == 0 ? *this : others[at(kind - 1)]; }
  bool operator==(const Profile&) const = default;
};

/// Devices that compute every layer together.
inline int group_size(int tensor, int context, int experts, int shards) {
  return std::max(tensor * context, experts) * shards;
}
inline int group_size(const Profile& profile) {
  return group_size(profile.tensor_degree, profile.context_parallel.degree, profile.expert_parallel.degree,
                    profile.shard_group.degree);
}

/// Sum over layers and loss of forward + backward at one size, divided by the whole-model time; the
/// cross-check. Nothing when the profile has no whole-model time at that size.
std::optional<double> layer_sum_ratio(const Profile& profile, std::int64_t micro_batch_size);

/// Checks also that the layers are those of the embedded model and that the hash is its hash.
Profile profile_from_json(const Json& json);
Json to_json(const Profile& profile);
Profile parse_profile(std::string_view text);
std::string profile_hash(const Profile& profile);

struct UpdateLine {
  Seconds fixed{};
  double seconds_per_byte = 0;  ///< of parameters
  bool operator==(const UpdateLine&) const = default;
};

/// Theil-Sen over `parts`: the median of the slopes of all pairs of different bytes, then the median of what
/// the points leave above it; neither is negative. Points of one size, or no parts, give a line through the
/// origin: the median of seconds per byte, or the whole model's. Zero without parameters.
UpdateLine update_line(const OptimizerProfile& optimizer);

}  // namespace pp
