// A model as other trainers see language models: an embedding, a row of equal blocks (some of them with a
// mixture of experts in place of the perceptron), a head; and which of the blocks stand in which stage.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "libplan/interop/trainer_export.h"
#include "libprofile/core/blocks.h"

namespace pp::plan::detail {

/// A row of blocks in the model: layers `PREFIX<n>.*` for n = 0, 1, ...
struct BlockRow {
  std::vector<std::size_t> begins;      ///< first layer of each block
  std::size_t end = 0;                  ///< behind the last one
  std::vector<bool> mixtures;           ///< of each block whether it has experts
  std::vector<Block> predictions = {};  ///< prediction_blocks() behind the row
  std::size_t end_of(std::size_t block) const { return block + 1 < begins.size() ? begins[block + 1] : end; }
  int size() const { return static_cast<int>(begins.size()); }
  /// The first block with experts, or without.
  std::size_t first(bool mixture) const {
    return static_cast<std::size_t>(std::ranges::find(mixtures, mixture) - mixtures.begin());
  }
  bool has(bool mixture) const { return first(mixture) < mixtures.size(); }
  /// The first layer behind all blocks.
  std::size_t behind() const {
    return predictions.empty() ? end : static_cast<std::size_t>(predictions.back().end);
  }
};

/// The row of blocks with equal operations and parameters, those with experts among themselves, that holds most
/// of the layers. Throws pp::Error (data) in the name of `trainer` when there is none of at least two.
BlockRow block_row_of(const ResolvedModel& model, const std::string& trainer);

/// How many blocks each stage has, without predictions. Throws pp::Error (data) where a stage begins inside a
/// block, or what stands before and behind all blocks is not in the first and last stage.
std::vector<int> blocks_of_stages(const Plan& plan, const BlockRow& row, const std::string& trainer);

/// The stage of all predictions; -1: there are none. Throws pp::Error (data) where they are in several, or what
/// stands between the row and them is in a stage of its own.
int stage_of_predictions(const Plan& plan, const BlockRow& row, const std::string& trainer);

/// Adds the products of matrices outside the blocks, but for the head: those of a vision tower, say.
void leave_out_others(const ResolvedModel& model, const BlockRow& row, LossList& lost);

/// Sizes of a language model, as far as the layers say them; 0: they do not.
struct LanguageSizes {
  std::int64_t sequence = 0, vocabulary = 0, width = 0, feed_forward = 0, heads = 0, key_value_heads = 0;
  std::int64_t expert_hidden = 0;
  bool tied = false;  ///< the head has the embedding's weights
  bool operator==(const LanguageSizes&) const = default;
};
/// `feed_forward`: what the last product of a block without experts reads, or else one of an expert.
LanguageSizes language_sizes(const ResolvedModel& model, const BlockRow& row);

/// What runs again to save memory, in the words of trainers that say it for all blocks.
struct BlockRecompute {
  enum class Kind {
    none,
    full,       ///< every block
    attention,  ///< of every block the attention between its products
    first,      ///< the first `blocks` of every stage, or all where it has fewer
    other
  };
  Kind kind = Kind::none;
  int blocks = 0;
  bool operator==(const BlockRecompute&) const = default;
};
BlockRecompute block_recompute(const Plan& plan, const BlockRow& row);

}  // namespace pp::plan::detail
