// The blocks of a model, as the names of its layers say (`block3.norm1`, `model.layers.3.mlp.up_proj`), and the
// profile of a trainer that recomputes them.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "libprofile/core/profile.h"

namespace pp {

/// The number of the block that a layer is in: of its name's parts between points the first that ends in a
/// number and has others behind it. -1: in none.
int block_number(std::string_view layer);

/// Layers [begin, end) of one block, which follow each other.
struct Block {
  int number = 0;
  int begin = 0, end = 0;
  bool operator==(const Block&) const = default;
};
/// In the order of the layers; those in no block are in none.
std::vector<Block> blocks_of(const ModelGraph& model);

/// The last blocks that begin with an embedding: each predicts one token further (multi-token
/// prediction; DeepSeek-AI, DeepSeek-V3 technical report, 2024, sec. 2.2).
std::vector<Block> prediction_blocks(const ModelGraph& model);

/// The profile in which every block keeps its inputs alone, and its backward begins with its forward
/// (activation checkpointing as trainers have it: Chen et al., Training Deep Nets with Sublinear Memory Cost,
/// 2016); what is so already stays. Its context says `checkpoint`. Throws pp::Error (usage) for a model without
/// blocks.
Profile with_checkpoints(Profile profile);
/// The same of some of blocks_of(), which its context says in these words.
Profile with_checkpoints(Profile profile, const std::string& said, std::span<const int> chosen);

}  // namespace pp
