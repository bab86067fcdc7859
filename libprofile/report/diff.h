// Two profiles side by side: another machine, another type, another day.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "libprofile/core/profile.h"

namespace pp::profile {

/// Something besides times and bytes that the two documents do not have in common; `-` where one has none.
struct Difference {
  std::string what;  ///< `dtype`, `device name`, `context utc_time`
  std::string first, second;
  bool operator==(const Difference&) const = default;
};

/// One layer that both measured, or the sum of them.
struct LayerDiff {
  std::string name;
  Seconds first{}, second{};              ///< forward + backward
  Bytes first_memory{}, second_memory{};  ///< weights, and what is kept for backward
  /// The recorded intervals touch: noise explains the difference. The 16th percentiles of forward and backward
  /// are added, and the 84th, as if both were slow together. Of the sum: this holds for every layer.
  bool within_spread = false;

  /// second / first; nothing where the first is 0.
  std::optional<double> ratio() const;
  bool operator==(const LayerDiff&) const = default;
};

struct ProfileDiff {
  std::vector<Difference> differences;
  std::int64_t micro_batch_size = 0;  ///< at which times and bytes are compared
  std::vector<LayerDiff> layers;      ///< by name, in the first profile's order, the loss last
  LayerDiff total;                    ///< of these layers
  /// Median over the layers of |ratio - 1|, layers without a ratio left out.
  double median_change = 0;
  std::vector<std::string> only_first, only_second;  ///< layers that only one has, or that ran out of memory
  bool operator==(const ProfileDiff&) const = default;
};

/// Compares at `micro_batch_size`, by default the largest that both have. Throws pp::Error (usage) for a size
/// that one of them has not, and for profiles without a common size.
ProfileDiff diff_profiles(const Profile& first, const Profile& second,
                          std::optional<std::int64_t> micro_batch_size = std::nullopt);

/// Keys `differences`, `micro_batch_size`, `layers`, `total`, `median_change`, `only_first`, `only_second`.
Json to_json(const ProfileDiff& diff);

}  // namespace pp::profile
