// A decoder in Megatron-LM's arguments: its sizes and its architecture, and the files of an export.
#pragma once

#include <string>
#include <vector>

#include "libplan/interop/block_row.h"

namespace pp::plan::detail {

struct MegatronModel {
  std::string arguments;  ///< an argument a line
  std::vector<std::string>
      unsaid;  ///< what the model has and no argument says; empty: the arguments are the model
};

/// Stage s is on worker s mod K, which is refused otherwise, in the order of 1F1B or interleaved 1F1B, or that
/// is lost.
void check_order(const Plan& plan, const Lane& lane, LossList& lost);

/// Source: Megatron-LM, core release 0.13 and later (megatron/training/arguments.py: network size,
/// regularization; core/models/common/embeddings/rotary_pos_embedding.py: the scaling of Llama 3).
/// `--window-size` came later than 0.13.
MegatronModel megatron_model(const ResolvedModel& model, const BlockRow& row);

}  // namespace pp::plan::detail
