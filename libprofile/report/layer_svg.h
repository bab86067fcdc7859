// A profile as a picture: per layer a bar of its time and a bar of its memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "libprofile/report/layer_rows.h"

namespace pp::profile {

struct LayerSvgOptions {
  LayerOrder order = LayerOrder::model;
  std::optional<std::int64_t> micro_batch_size = std::nullopt;  ///< none: the largest measured
  int limit = 0;       ///< number of layers, the first of the order; 0: all
  double width = 900;  ///< pixels, at least 500
};

/// One row per layer, or per block of layers where there are more than 60 and no limit was given: forward and
/// backward end to end in one panel, weights and saved bytes in the other, each panel from 0 to its longest
/// bar. Tooltips carry the halves of backward and the spread. A layer that was out of memory says so. Same
/// profile, same bytes. Throws pp::Error (usage) for a size that was not measured.
std::string layer_svg(const Profile& profile, const LayerSvgOptions& options);

}  // namespace pp::profile
