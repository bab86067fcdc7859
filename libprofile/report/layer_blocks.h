// The rows of a profile gathered into few enough to be looked at.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "libprofile/report/layer_rows.h"

namespace pp::profile {

/// Rows that stand for one; refers into them.
struct LayerBlock {
  std::string name;
  std::span<const LayerRow> rows;

  bool folded() const { return rows.size() > 1; }
  bool out_of_memory() const;  ///< at least one of them
};

/// One block per row where there are at most `most`. Else in the model's order: neighbours with the same first
/// parts of their names (`block3.attention.query`), as many parts as leave at most `most` blocks; where that
/// puts more than half of the layers into one, runs of equal length. In other orders: the first rows alone, the
/// rest as one block.
std::vector<LayerBlock> layer_blocks(std::span<const LayerRow> rows, std::size_t most, LayerOrder order);

}  // namespace pp::profile
