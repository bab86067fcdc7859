// One micro-batch size of a profile as rows, one per layer: what tables, bars and pictures are drawn from.
#pragma once

#include <cstdint>
#include <optional>
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
