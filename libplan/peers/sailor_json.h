// Reader of Sailor's profiles (Strati et al., Sailor, SOSP 2025): seconds of every layer by model, GPU,
// micro-batch size and tensor degree, and nothing but seconds.
#pragma once

#include <string_view>

#include "libprofile/core/profile.h"

namespace pp::plan {

/// {"MODEL/GPU": {micro-batch size: {tensor degree: {layer: [forward, backward, update], ..}}}}: the entry
/// `entry` ("OPT-350/GH-96") at the degree of `sizes`. Parameters and bytes are those of `sizes`, a profile of
/// the same model (of pp-profile estimate, say) whose layers stand in numbered blocks: Sailor's layers are what
/// stands before the blocks, each block, and what stands behind them with the loss. Micro-batch sizes are those
/// of both. The update of all layers is that of Adam; where an entry has 0 for all of them, it is missing.
/// Throws pp::Error: (usage) for an entry or a degree that there is not, or no common micro-batch size, with
/// those that there are; (data) for layers that are missing, which are named: numbers that are left out, fewer
/// than the model's other entries or than `sizes` has; for what is no time.
Profile import_sailor(std::string_view text, std::string_view entry, const Profile& sizes);

}  // namespace pp::plan
