// The same profile by all ranks of mpirun at once, each on its own device.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "libprofile/core/profile.h"
#include "librun/transport/peers.h"

namespace pp::profile_tool {

/// Where a rank runs.
struct RankPlace {
  std::string host;
  int on_host = 0;  ///< ranks of this host before it
  int beside = 0;   ///< of these, those that may use the same cores
};

/// All ranks call it; each gets its own.
RankPlace place_of_rank(run::Peers& peers);

struct RankProfile {
  RankPlace place;
  Profile profile;
};

/// What `measure` returns on each rank, on rank 0 by rank; empty elsewhere. Throws pp::Error on rank 0 where
/// one rank could not measure, named; on the others nothing.
std::vector<RankProfile> gather_profiles(run::Peers& peers, const RankPlace& place,
                                         const std::function<Profile()>& measure);

/// On rank 0: a profile for each class of equal devices, that of its first rank; the speeds of all into the
/// file `cluster`, unless empty, which pp-profile links has written for the same ranks; and what was done, on
/// stdout.
void write_classes(const std::vector<RankProfile>& all, const std::string& output, const std::string& cluster);

/// `p.json` for one class, `p-CLASS.json` for several.
std::string class_file(const std::string& output, const std::string& name, bool alone);

}  // namespace pp::profile_tool
