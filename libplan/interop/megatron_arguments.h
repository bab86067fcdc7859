// Megatron-LM's arguments, read: what a plan of its own would be, to be priced.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "libplan/cost/graph.h"
#include "libplan/request/plan_request.h"
#include "libprofile/core/profile.h"

namespace pp::plan {

/// The number of blocks of multi-token prediction.
inline constexpr std::string_view kMegatronPredictions = "mtp-num-layers";

/// The first layers of all stages but the first, of a layout such as `Et*3|(tt|)*29,m|L`: `E` is what stands in
/// front of the first numbered block, `t` a block, `m` one of the last `predictions`, `L` what stands behind
/// them, `|` begins a stage, `x*n` and `(..)*n` repeat, commas mean nothing. `E||t|L`, a stage of nothing, is
/// refused. Throws pp::Error (usage) for a text that is no layout, and for one of another number of blocks.
/// Source: Megatron-Core's guide, "Custom Pipeline Model Parallel Layout".
std::vector<int> cuts_of_layout(const PlanGraph& graph, std::size_t predictions, const std::string& layout);

/// Values by name, without dashes; of flags empty, of several words as they stand.
using MegatronArguments = std::map<std::string, std::string, std::less<>>;

/// The words of a file of arguments or a launch script, from the first that begins with `--` on, as a shell
/// would read them but for variables. Throws pp::Error (usage) where a value is a variable.
MegatronArguments parse_megatron_arguments(std::string_view text);

/// The profile as these arguments have it: their recomputation is what it says of checkpoints. Throws pp::Error
/// (usage) for sizes, degrees, types or recomputation that belong to another profile, and says which; and for
/// arguments that change a step in a way that is not priced.
Profile profile_by(const MegatronArguments& arguments, Profile profile);

/// The one plan that the arguments leave on a machine of so many devices, each a group of the profile; of
/// `request` what they do not say. Throws pp::Error (usage) where they do not go with the number of devices.
PlanRequest request_by(const MegatronArguments& arguments, const Profile& profile, int devices,
                       PlanRequest request);

/// The one plan of a layout: `request` has its cuts and stages per worker. Throws as request_by().
PlanRequest request_by_layout(int devices, PlanRequest request);

/// Arguments that are neither priced nor of the profile's model: `--lr`, `--data-path`.
std::vector<std::string> unread_arguments(const MegatronArguments& arguments, const Profile& profile);

}  // namespace pp::plan
