// One micro-batch size of a profile as rows, one per layer, or gathered into few enough to be looked at:
// what tables, bars and pictures are drawn from.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "libprofile/core/profile.h"

namespace pp::profile {

enum class LayerOrder { model, time, memory };

/// A layer, or the loss, at one size. Refers into the profile.
struct LayerRow {
  const LayerProfile* layer = nullptr;
  const LayerPoint* point = nullptr;

  /// Forward + backward; 0 when it was out of memory.
  Seconds time() const { return point->forward.median + point->backward.median; }
  /// Weights, and what is kept for backward.
  Bytes memory() const { return layer->parameters + point->saved; }
};

/// Where `wanted` stands in the profile's sizes; none: the largest. Throws pp::Error (usage) with the sizes
/// that were measured.
std::size_t size_position(const Profile& profile, std::optional<std::int64_t> wanted);

/// The layers in the model's order and the loss behind them, or the largest first; equals keep the model's
/// order.
std::vector<LayerRow> layer_rows(const Profile& profile, std::size_t position, LayerOrder order);

/// Sums over all rows.
Seconds total_time(const std::vector<LayerRow>& rows);
Bytes total_memory(const std::vector<LayerRow>& rows);

}  // namespace pp::profile

namespace pp {
template <>
struct EnumNames<profile::LayerOrder> {
  static constexpr std::array table{std::pair{profile::LayerOrder::model, "model"sv},
                                    std::pair{profile::LayerOrder::time, "time"sv},
                                    std::pair{profile::LayerOrder::memory, "memory"sv}};
};
}  // namespace pp

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
