// A profile as text for people.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "libprofile/core/profile.h"

namespace pp::profile_tool {

enum class LayerOrder { model, time, memory };

struct LayerTableOptions {
  LayerOrder order = LayerOrder::model;
  std::optional<std::int64_t> micro_batch_size;  ///< none: the largest measured
  int limit = 0;                                 ///< show the first so many layers of the order; 0: all
  bool color = false;
};

/// What was measured, on what, and how far the sum of the layers is from the whole model.
std::string profile_summary(const Profile& profile);
/// One row per layer: times in ms, bytes in KiB, a bar of its share of the time. Throws pp::Error (usage) for a
/// size that was not measured.
std::string layer_table(const Profile& profile, const LayerTableOptions& options);

}  // namespace pp::profile_tool

namespace pp {
template <>
struct EnumNames<profile_tool::LayerOrder> {
  static constexpr std::array table{std::pair{profile_tool::LayerOrder::model, "model"sv},
                                    std::pair{profile_tool::LayerOrder::time, "time"sv},
                                    std::pair{profile_tool::LayerOrder::memory, "memory"sv}};
};
}  // namespace pp
