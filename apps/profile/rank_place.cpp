#include "apps/profile/rank_place.h"

namespace pp::profile_tool {

RankPlace place_of(std::span<const RankSight> all, int rank) {
  const RankSight& mine = all[static_cast<std::size_t>(rank)];
  RankPlace place{.host = mine.host};
  for (const RankSight& before : all.first(static_cast<std::size_t>(rank))) {
    if (before.host != mine.host) continue;
    ++place.on_host;
    if (before.devices == mine.devices) ++place.beside;
  }
  return place;
}

}  // namespace pp::profile_tool
