// What other trainers can run, as limits of a search: the best plan among those that can be exported, in place
// of a refusal afterwards.
#pragma once

#include <span>
#include <string_view>

#include "libplan/request/plan_request.h"
#include "libprofile/core/enum_names.h"
#include "libprofile/core/profile.h"

namespace pp::plan {

enum class Trainer { megatron, torchtitan, deepspeed };

}  // namespace pp::plan

namespace pp {
template <>
struct EnumNames<plan::Trainer> {
  static constexpr std::array table{
      std::pair{plan::Trainer::megatron, "megatron"sv}, std::pair{plan::Trainer::torchtitan, "torchtitan"sv},
      std::pair{plan::Trainer::deepspeed, "deepspeed"sv},
      // Megatron-Core, too
      std::pair{plan::Trainer::megatron, "nemo"sv}, std::pair{plan::Trainer::megatron, "megatron-bridge"sv},
      std::pair{plan::Trainer::megatron, "verl"sv}, std::pair{plan::Trainer::megatron, "slime"sv},
      std::pair{plan::Trainer::megatron, "nemo-rl"sv}};
};
}  // namespace pp

namespace pp::plan {

/// What no plan for this trainer knows, where that matters for choosing one; empty: nothing.
std::string_view caveat_of(Trainer trainer);

/// Whether a profile that is estimated for steps by `estimated` (pp.trainer) is one for this trainer: NeMo is
/// Megatron.
bool goes_with(Trainer trainer, std::string_view estimated);

/// One limit: as if `option` had been given, and why.
struct TrainerRule {
  std::string_view option;
  std::string_view value;
  std::string_view reason;
  bool (*admits)(const PlanRequest& request);           ///< what the request says already; else it is refused
  void (*apply)(PlanRequest& request, DType profiled);  ///< does nothing where the request says it already
};

/// The table, in the order in which the limits are applied. Sources: megatron.cpp, torchtitan.cpp.
std::span<const TrainerRule> rules_of(Trainer trainer);

/// Throws pp::Error for a profile whose plans the trainer could not run, whatever is asked for: data for a
/// model that is no row of equal blocks, usage for passes under autocast.
void check_model(Trainer trainer, const Profile& profile);

/// The request within what the trainer can run of a profile of this type, and named after it
/// (PlanRequest::trainer). Schedules may have the trainers' names: `1f1b` is `hybrid`, since their replicas are
/// whole pipelines side by side. Throws pp::Error (usage) where it asks for something else: the option, what
/// the trainer takes, and why.
PlanRequest for_trainer(Trainer trainer, PlanRequest request, DType profiled);

}  // namespace pp::plan
