#include "libplan/interop/trainer_rules.h"

#include <algorithm>
#include <array>

#include "libplan/interop/block_row.h"
#include "libprofile/core/error.h"

namespace pp::plan {
namespace {

constexpr std::string_view kMegatronSchedules = "hybrid,interleaved";
constexpr std::string_view kDeepSpeedSchedules = "hybrid";
constexpr std::string_view kTorchSchedules = "hybrid,interleaved,looped-bfs,zb-h1,zb-v,dualpipe-v";

/// Whether `list` names the item; both are without spaces.
bool names(std::string_view list, std::string_view item) {
  return (',' + std::string(list) + ',').find(',' + std::string(item) + ',') != std::string::npos;
}

/// Nothing asked for, or nothing but some of these.
template <const std::string_view& kList>
bool schedules_within(const PlanRequest& request) {
  std::string_view left = request.schedule;
  if (left == PlanRequest{}.schedule) return true;
  while (true) {
    const std::size_t comma = left.find(',');
    if (!names(kList, left.substr(0, comma))) return false;
    if (comma == left.npos) return true;
    left.remove_prefix(comma + 1);
  }
}

/// What trainers call schedules, by our names; pipelines side by side are 1F1B there.
std::string our_names(std::string_view schedules) {
  using namespace std::string_view_literals;
  constexpr std::array kTheirs{std::pair{"1f1b"sv, "hybrid"sv},
                               std::pair{"1F1B"sv, "hybrid"sv},
                               std::pair{"Interleaved1F1B"sv, "interleaved"sv},
                               std::pair{"LoopedBFS"sv, "looped-bfs"sv},
                               std::pair{"ZBVZeroBubble"sv, "zb-v"sv},
                               std::pair{"DualPipeV"sv, "dualpipe-v"sv}};
  std::string ours;
  for (std::size_t comma = 0; comma != schedules.npos; schedules.remove_prefix(comma + 1)) {
    comma = schedules.find(',');
    const std::string_view name = schedules.substr(0, comma);
    const auto known = std::ranges::find(kTheirs, name, &std::pair<std::string_view, std::string_view>::first);
    ours.append(ours.empty() ? "" : ",").append(known == kTheirs.end() ? name : known->second);
    if (comma == schedules.npos) break;
  }
  return ours;
}

template <const std::string_view& kList>
void take_schedules(PlanRequest& request, DType) {
  if (request.schedule == PlanRequest{}.schedule) request.schedule = kList;
}

constexpr TrainerRule kBlocks{"--cut-at", "block", "its stages hold whole transformer layers",
                              [](const PlanRequest& r) { return !r.cut_at || r.cut_at->depth == 0; },
                              [](PlanRequest& r, DType) { r.cut_at = PlanRequest::CutAt{}; }};
constexpr TrainerRule kPacked{"--placement", "packed",
                              "its ranks go through the devices stage by stage, replicas side by side",
                              [](const PlanRequest& r) {
                                return r.placement == Placement::automatic || r.placement == Placement::packed;
                              },
                              [](PlanRequest& r, DType) { r.placement = Placement::packed; }};
constexpr TrainerRule kEven{"--replicas", "one number that divides the micro-batches",
                            "its data-parallel ranks run the same pipeline on equally many micro-batches",
                            [](const PlanRequest& r) {
                              return std::ranges::adjacent_find(r.replicas, std::ranges::not_equal_to()) ==
                                     r.replicas.end();
                            },
                            [](PlanRequest& r, DType) { r.even_replicas = r.even_nodes = true; }};

/// The optimizers that the trainer has, in the order of the alphabet: `adam, adamw, sgd`.
template <std::string_view OptimizerRow::*kTheirs>
constexpr auto kOptimizers = [] {
  std::array<std::string_view, kOptimizerRows.size()> names{};
  std::size_t count = 0, length = 0;
  for (const OptimizerRow& row : kOptimizerRows)
    if (!(row.*kTheirs).empty()) names[count++] = row.text;
  std::sort(names.begin(), names.begin() + count);
  std::pair<std::array<char, 128>, std::size_t> text{};
  for (std::size_t i = 0; i < count; ++i)
    for (const std::string_view part : {i == 0 ? ""sv : ", "sv, names[i]})
      length = std::ranges::copy(part, text.first.begin() + length).out - text.first.begin();
  text.second = length;
  return text;
}();
template <std::string_view OptimizerRow::*kTheirs>
constexpr TrainerRule kOptimizer{"--optimizer",
                                 {kOptimizers<kTheirs>.first.data(), kOptimizers<kTheirs>.second},
                                 "it has no other",
                                 [](const PlanRequest& r) { return !(row_of(r.optimizer).*kTheirs).empty(); },
                                 [](PlanRequest&, DType) {}};

/// What --recompute may be for any of them.
bool same_for_all(const PlanRequest& request) { return request.recompute != RecomputeMode::except_last; }
constexpr TrainerRule kFlush{"--allow-async, --weight-policy", "neither",
                             "it updates weights when all micro-batches of a step are through",
                             [](const PlanRequest& r) { return !r.allow_async && !r.weight_policy; },
                             [](PlanRequest&, DType) {}};

constexpr TrainerRule kWindow{"--window", "win",
                              "its 1F1B keeps no more micro-batches in flight than stages follow",
                              [](const PlanRequest& r) { return !r.window || r.window == WindowRule::win; },
                              [](PlanRequest& r, DType) { r.window = WindowRule::win; }};
constexpr TrainerRule kMaster{"--precision", "mixed, of float32 plain",
                              "weights of a half type have a float32 master and gradients there",
                              [](const PlanRequest& r) { return r.precision != Precision::autocast; },
                              [](PlanRequest& r, DType profiled) {
                                if (profiled == DType::bfloat16) r.precision = Precision::mixed;
                              }};
constexpr TrainerRule kUniform{"--recompute", "never, always, or the better of both by auto",
                               "it recomputes in every layer or in none", same_for_all,
                               [](PlanRequest& r, DType) { r.recompute_extent = RecomputeExtent::uniform; }};

constexpr std::array kMegatron{
    TrainerRule{"--schedule", kMegatronSchedules,
                "it has 1F1B, which is hybrid where pipelines stand side by side, and interleaved 1F1B",
                schedules_within<kMegatronSchedules>, take_schedules<kMegatronSchedules>},
    kWindow,
    kBlocks,
    kEven,
    kPacked,
    kMaster,
    kOptimizer<&OptimizerRow::megatron>,
    TrainerRule{"--recompute", "never, always, or the best by auto",
                "it recomputes as many blocks of every stage, its first ones", same_for_all,
                [](PlanRequest& r, DType) { r.recompute_extent = RecomputeExtent::first_blocks; }},
    kFlush};

constexpr std::array kTorchTitan{
    TrainerRule{"--schedule", kTorchSchedules, "its ranks hold their stages in turns, or two of them in a V",
                schedules_within<kTorchSchedules>, take_schedules<kTorchSchedules>},
    kBlocks,
    kEven,
    kPacked,
    TrainerRule{"--tied", "stage", "nobody there adds the gradients of weights that two stages share",
                [](const PlanRequest& r) { return r.tied != TiedWeights::copies; },
                [](PlanRequest& r, DType) { r.tied = TiedWeights::stage; }},
    kOptimizer<&OptimizerRow::torchtitan>,
    kUniform,
    kFlush};

constexpr std::array kDeepSpeed{
    TrainerRule{"--schedule", kDeepSpeedSchedules,
                "it has 1F1B, which is hybrid where pipelines stand side by side",
                schedules_within<kDeepSpeedSchedules>, take_schedules<kDeepSpeedSchedules>},
    kWindow,
    kBlocks,
    kEven,
    kPacked,
    kMaster,
    TrainerRule{"--all-reduce-overlap", "0", "its pipelines add gradients up after the last backward",
                [](const PlanRequest& r) { return r.all_reduce_overlap.value_or(0) == 0; },
                [](PlanRequest& r, DType) { r.all_reduce_overlap = 0; }},
    kUniform,
    kFlush};

}  // namespace

// The factors: tests/lab/bench/notes/profile.md, 1 / 0.86 to 1 / 0.77.
std::string_view caveat_of(Trainer trainer) {
  if (trainer != Trainer::torchtitan) return {};
  return "TorchTitan divides weights and gradients among replicas, too (FSDP): plans of one stage are those of "
         "profiles with --shard-degree; without it memory is counted too high";
}

bool goes_with(Trainer trainer, std::string_view estimated) {
  return estimated == name_of(trainer) || (trainer == Trainer::megatron && estimated == "nemo");
}

std::span<const TrainerRule> rules_of(Trainer trainer) {
  if (trainer == Trainer::megatron) return kMegatron;
  if (trainer == Trainer::deepspeed) return kDeepSpeed;
  return kTorchTitan;
}

void check_model(Trainer trainer, const Profile& profile) {
  detail::block_row_of(resolve(profile.model), "--for " + std::string(name_of(trainer)));
  if (trainer == Trainer::megatron && profile.autocast) {
    throw Error(
        ErrorKind::usage,
        "--for megatron: the profile ran under autocast, which it has not; profile with --dtype bfloat16, "
        "and weights are half ones with a float32 master");
  }
  if (trainer == Trainer::megatron && profile.shard_group.degree > 1) {
    throw Error(
        ErrorKind::usage,
        "--for megatron: its plans shard the optimizer's state alone; estimate without --shard-degree and "
        "plan with --shard optimizer");
  }
}

PlanRequest for_trainer(Trainer trainer, PlanRequest request, DType profiled) {
  request.schedule = our_names(request.schedule);
  for (const TrainerRule& rule : rules_of(trainer)) {
    if (!rule.admits(request)) {
      throw Error(ErrorKind::usage, std::string(rule.option) + ": --for " + std::string(name_of(trainer)) +
                                        " takes " + std::string(rule.value) + " (" + std::string(rule.reason) +
                                        "); leave one of the two out");
    }
    rule.apply(request, profiled);
  }
  request.trainer = name_of(trainer);
  return request;
}

}  // namespace pp::plan
