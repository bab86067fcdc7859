// The plan as a value (document pp.plan): stages, workers and their programs, devices, what the plan promises
// and why it was chosen; or why there is none. It embeds the model and the devices, so pp-run needs nothing
// else. Can be written or edited by hand: check_plan() validates it in full.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "libplan/schedule/program.h"
#include "libplan/schedule/schedule.h"
#include "libplan/simulate/simulate.h"
#include "libprofile/core/cluster.h"
#include "libprofile/core/index.h"
#include "libprofile/core/json_reader.h"
#include "libprofile/core/model/model_graph.h"
#include "libprofile/core/optimizer_table.h"
#include "libprofile/core/profile.h"
#include "libprofile/core/units.h"

namespace pp {
struct Keys;
}

namespace pp::plan {

/// Which forwards run again before their backward. A description: R in the programs runs a whole stage again
/// from its inputs, Stage::recompute single layers inside the backward.
enum class RecomputePolicy {
  never,
  except_last,  ///< R for every micro-batch but the last
  always,       ///< R for every micro-batch
  per_stage     ///< as each stage needs it: nothing, R, or some of its layers
};
/// In which types training keeps what the passes do not say (cost/README.md).
enum class Precision {
  plain,     ///< weights, gradients and state in the type of the run
  autocast,  ///< all three in float32, products in a half type
  mixed      ///< half weights; gradients, state and a master copy of the weights in float32
};
/// What the replicas of a stage divide among themselves instead of each holding all of it.
enum class Shard {
  none,
  optimizer  ///< the optimizer's state, and the work of the update
};

}  // namespace pp::plan

namespace pp {
template <>
struct EnumNames<plan::RecomputePolicy> {
  static constexpr std::array table{std::pair{plan::RecomputePolicy::never, "never"sv},
                                    std::pair{plan::RecomputePolicy::except_last, "except_last"sv},
                                    std::pair{plan::RecomputePolicy::always, "always"sv},
                                    std::pair{plan::RecomputePolicy::per_stage, "per_stage"sv}};
};
template <>
struct EnumNames<plan::Precision> {
  static constexpr std::array table{std::pair{plan::Precision::plain, "plain"sv},
                                    std::pair{plan::Precision::autocast, "autocast"sv},
                                    std::pair{plan::Precision::mixed, "mixed"sv}};
};
template <>
struct EnumNames<plan::Shard> {
  static constexpr std::array table{std::pair{plan::Shard::none, "none"sv},
                                    std::pair{plan::Shard::optimizer, "optimizer"sv}};
};
}  // namespace pp

namespace pp::plan {

struct Training {
  int mini_batch = 1;     ///< samples per optimizer update
  int micro_batches = 1;  ///< per update
  DType dtype = DType::float32;
  MemoryFormat memory_format = MemoryFormat::contiguous;
  std::optional<Autocast> autocast = std::nullopt;  ///< forwards run under it, as they did in the profile
  OptimizerName optimizer = OptimizerName::sgd;
  Precision precision = Precision::plain;
  Shard shard = Shard::none;
  std::vector<KernelChoice> kernels = {};  ///< effective() ones of the profile; others are the usual ones
  std::optional<NarrowType> products = std::nullopt;  ///< the profile's
  bool operator==(const Training&) const = default;
};

struct ScheduleInfo {
  std::string name;
  WeightPolicy weight_policy = WeightPolicy::flush;
  RecomputePolicy recompute = RecomputePolicy::never;
  int chunks_per_worker = 1;
  bool operator==(const ScheduleInfo&) const = default;
};

struct Stage {
  std::vector<std::string> layers;
  std::vector<WorkerId> workers;       ///< its replicas
  std::vector<std::string> recompute;  ///< layers that run again inside B (split: I), one at a time; no R then
  bool operator==(const Stage&) const = default;
};

/// Parameters of one layer that layers of several stages use: each of these has a copy, and the gradients are
/// added over the stages (entry k: ARg<k>).
struct TiedParameter {
  std::string parameter;  ///< `embedding.weight`; several are separated by ", "
  std::vector<std::string> layers;
  std::vector<StageId> stages;
  bool operator==(const TiedParameter&) const = default;
};

struct Worker {
  WorkerId id{};
  DeviceId device{};
  int rank = 0;
  WorkerProgram program;
  bool operator==(const Worker&) const = default;
};

struct WorkerPrediction {
  Seconds busy{};  ///< per step
  MemoryPeak memory;
  bool operator==(const WorkerPrediction&) const = default;
};

struct LinkPrediction {
  WorkerId from{}, to{};
  Bytes bytes_per_step;
  bool operator==(const LinkPrediction&) const = default;
};

/// What weights and activations that live on the host take to the device of a worker and back.
struct SwapLink {
  BytesPerSecond bandwidth{0};  ///< 0: nothing is swapped
  double overlap = 0;           ///< share that operations hide
  bool operator==(const SwapLink&) const = default;
};

struct Prediction {
  Seconds step{};  ///< steady period of chained steps; asynchronous: seconds per update
  /// Mean of the step when operations vary as the profile recorded; nothing: it recorded no spread.
  std::optional<Seconds> expected_step;
  Seconds makespan{};  ///< of one isolated step
  double samples_per_s = 0;
  double bubble_fraction = 0;
  std::vector<WorkerPrediction> workers;
  std::vector<LinkPrediction> links;
  /// What the simulator was given, so that a plan can be simulated again without its profile.
  std::vector<StageCosts> stages;
  std::vector<StageEdge> edges;
  std::vector<Seconds> tied_all_reduce;   ///< per entry of Plan::tied
  std::vector<double> micro_batch_scale;  ///< of times; empty: all micro-batches are equal
  std::vector<double> micro_batch_bytes;  ///< of bytes; empty: as the times
  double all_reduce_overlap = 0;          ///< share that the last backward hides of what it could hide
  SwapLink swap;                          ///< of weights that live on the host
  bool operator==(const Prediction&) const = default;
};

/// How good the plan is proven to be.
struct Certificate {
  Seconds objective{};
  Seconds lower_bound{};  ///< no plan of the searched family is faster
  double gap = 0;         ///< objective/lower_bound - 1
  std::string search;     ///< what was searched, in words
  bool operator==(const Certificate&) const = default;
};

struct Alternative {
  std::string schedule;
  std::string stages;    ///< layers per stage: `7|5`
  std::string replicas;  ///< `1-1`
  int micro_batches = 1;
  Seconds step{};
  Bytes peak;             ///< largest over the workers
  std::string recompute;  ///< per stage: `-`, all, or how many layers run again; empty: nothing does
  std::string why_not;
  std::optional<Seconds> expected_step = std::nullopt;  ///< as Prediction's
  int cores_per_device = 0;                             ///< where several Plan::machines competed; else 0
  int tensor_degree = 0, context_degree = 0, expert_degree = 0, shard_degree = 0;  ///< the same
  bool operator==(const Alternative&) const = default;
};

/// By how much the times of a layer were corrected.
struct LayerCorrection {
  std::string layer;
  double forward = 1, backward = 1, input_gradient = 1, weight_gradient = 1;
  bool operator==(const LayerCorrection&) const = default;
};
struct UpdateCorrection {
  std::string optimizer;  ///< of the profile
  double factor = 1;
  bool operator==(const UpdateCorrection&) const = default;
};
/// Of a device of the machine, as a run measured it.
struct MeasuredSpeed {
  DeviceId device{};
  std::string node;
  double speed = 1;  ///< as Device::speed
  bool operator==(const MeasuredSpeed&) const = default;
};

/// What runs measured, as factors of the profile's times and speeds of devices (report/calibration.h). Factors
/// of 1 are left out.
struct Calibration {
  std::vector<std::string> reports;  ///< hashes
  double least = 1, largest = 1;     ///< of the factors of times
  std::vector<LayerCorrection> layers = {};
  std::optional<LayerCorrection> loss = std::nullopt;
  std::vector<UpdateCorrection> updates = {};
  std::vector<MeasuredSpeed> devices = {};
  bool operator==(const Calibration&) const = default;
};

/// The same cores or GPUs as devices of some size, for which a profile was given: a machine that competed.
struct Machine {
  int devices = 1;
  int cores_per_device = 1;  ///< 0: GPUs
  std::string profile_hash;
  std::optional<Seconds> step;  ///< of its best plan; nothing: none fits
  std::string plan;             ///< that plan in a line
  std::string verdict;          ///< a sentence; empty: of the machine of the plan
  int tensor_degree = 1, context_degree = 1, expert_degree = 1, shard_degree = 1;  ///< of each device
  bool operator==(const Machine&) const = default;
};

struct Plan {
  Context context;
  ModelGraph model;
  std::string profile_hash;
  std::string cluster_hash;
  Training training;
  ScheduleInfo schedule;
  std::vector<Device> devices;
  std::vector<Level> levels;
  std::vector<Stage> stages;
  std::vector<TiedParameter> tied;
  std::vector<Worker> workers;
  Prediction predicted;
  Certificate certificate;
  std::vector<Alternative> alternatives;
  std::optional<Calibration> calibration;
  std::vector<Machine> machines;  ///< the chosen one first; empty: there was one
  /// GPUs of each of `devices`, which share every layer by splitting its tensors; bytes are of one of them.
  int tensor_degree = 1;
  int context_degree = 1;  ///< groups of so many GPUs that each have a part of the positions (ContextGroup)
  int expert_degree = 1;   ///< GPUs that each have a part of a mixture's experts (ExpertGroup)
  ShardGroup shard_group = {};
  std::optional<double> peak_flops_per_s =
      std::nullopt;  ///< ProfiledDevice's, of the type trained in; the mean
  bool operator==(const Plan&) const = default;
};

Plan plan_from_json(const Json& json);
Json to_json(const Plan& plan);
Plan parse_plan(std::string_view text);
/// The list of its keys.
pp::Keys plan_keys();
std::string plan_hash(const Plan& plan);

/// Replicas per stage: `3-1`.
std::string replicas_text(const Plan& plan);
/// Layers per stage: `7|5`.
std::string stages_text(const Plan& plan);

/// GPUs of each device.
inline int group_size(const Plan& plan) {
  return pp::group_size(plan.tensor_degree, plan.context_degree, plan.expert_degree, plan.shard_group.degree);
}
/// Tensor and context groups of a device, which divide each micro-batch by samples.
inline int groups_of_samples(const Plan& plan) {
  return group_size(plan) / (plan.tensor_degree * plan.context_degree);
}
/// Devices times group_size(): what the cluster has, whether the plan uses it or not.
int gpu_count(const Plan& plan);

/// Where the worker runs.
const Device& device_of(const Plan& plan, WorkerId worker);

/// Of the stage's slowest device, whose speed its prices are of.
double slowest_speed(const Plan& plan, const Stage& stage);

/// What `predicted`, a prediction of the plan, promises of most operations of this kind: of a micro-batch of
/// the middle size, and of the first one after an update where a replica has no other. 0 where it promises
/// nothing.
Seconds promised_time(const Plan& plan, const Prediction& predicted, OpKind kind, StageId stage);

/// Sizes of the micro-batches of a mini-batch by the tensor_split rule: 10 in 4 is 3,3,2,2.
/// Throws pp::Error (usage): `micro_batches = 8 exceeds the mini-batch of 6 samples`.
std::vector<int> micro_batch_sizes(int mini_batch, int micro_batches);

/// What Plan::tied must say: the parameters whose layers stand in several of the stages, in layer order. Layers
/// in no stage are left out.
std::vector<TiedParameter> tied_parameters(const ResolvedModel& model, const std::vector<Stage>& stages);

/// Full validation: every layer in exactly one stage, stages in an order that the edges allow, workers, devices
/// and programs consistent, programs valid (schedule/validate.h; streams are expanded to a few rounds), the
/// weight versions that streams need at hand, predicted memory within the devices. Throws pp::Error (data) with
/// the JSON pointer.
void check_plan(const Plan& plan);

/// Throws pp::Error (data) that names both models when `plan` was made for another one.
void require_model(const Plan& plan, const ModelGraph& model);
/// Throws pp::Error (data) when `plan` was not made from this profile.
void require_profile(const Plan& plan, const Profile& profile);
/// And when it takes times from further profiles, so that no other plan can be made from this one alone.
void require_whole_profile(const Plan& plan, const Profile& profile);

/// No plan keeps to the limits.
struct Infeasible {
  std::string reason;                   ///< one sentence: thing, value, limit
  std::optional<int> stage;             ///< of the best attempt, the one that falls short
  std::optional<DeviceId> device;       ///< where that stage would run
  std::vector<std::string> layers;      ///< of that stage
  Bytes short_by;                       ///< bytes that device lacks
  std::optional<Bytes> smallest_limit;  ///< the least `memory_limit` under which this request has a plan
  std::string remedy;      ///< the smallest change that was planned and fits, as an option; empty: none found
  bool cut_short = false;  ///< by the observer: a smaller limit or another change may do, too
  bool operator==(const Infeasible&) const = default;
};

}  // namespace pp::plan
