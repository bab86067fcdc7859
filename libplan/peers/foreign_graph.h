// What the readers of other planners' files share: layers that arrive in any order become a profile of opaque
// layers.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "libprofile/core/profile.h"

namespace pp::plan {

struct ForeignLayer {
  LayerProfile profile;     ///< with a point for each micro-batch size, the same of all layers
  std::set<int> producers;  ///< positions in the vector that holds this layer
};

/// The profile of `layers` in topological order, ties in the order given; device memory unknown, nothing in
/// `estimated`. `format` goes into the context. Throws pp::Error (data) for a cycle and
/// when there is no layer.
Profile foreign_profile(std::string_view name, std::string_view format,
                        const std::vector<ForeignLayer>& layers);

/// A time without spread.
TimeStat imported_time(Seconds time);

}  // namespace pp::plan
