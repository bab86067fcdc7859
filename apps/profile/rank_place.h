// Which of a machine's devices each of several ranks takes.
#pragma once

#include <span>
#include <string>

namespace pp::profile_tool {

/// What a rank sees: its host, and the devices there (profile::seen_devices).
struct RankSight {
  std::string host;
  std::string devices;
};

struct RankPlace {
  std::string host;
  int on_host = 0;  ///< ranks of this host before it
  int beside = 0;   ///< of these, those that see the same devices: it takes the next ones
};

/// `all`: of every rank, in their order.
RankPlace place_of(std::span<const RankSight> all, int rank);

}  // namespace pp::profile_tool
