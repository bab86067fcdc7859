// The same profile by all ranks of mpirun at once, each on its own device.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apps/cli/output.h"
#include "apps/profile/rank_place.h"
#include "libprofile/core/cluster.h"
#include "libprofile/core/json_reader.h"
#include "libprofile/core/profile.h"
#include "libprofile/report/device_classes.h"
#include "librun/transport/peers.h"

namespace pp::profile_tool {

/// Another rank could not go on, which rank 0 says.
struct SaidByFirst {};

/// What `mine` returns on each rank, by rank; every rank calls it. Where it throws pp::Error on one, all end:
/// rank 0 throws that error, with the rank's number and host, the others SaidByFirst.
std::vector<Json> exchange(run::Peers& peers, const std::function<Json()>& mine);

/// The same for profiles, which only rank 0 gets.
std::vector<Profile> gather_profiles(run::Peers& peers, const std::function<Profile()>& measure);

struct RankDevice {
  RankPlace place;
  ProfiledDevice device;
};

/// On rank 0, made before the long measurement: the files of all classes and the cluster. Throws pp::Error
/// (usage, data) where one cannot be written, where `-` would take several profiles, and where the cluster, a
/// file that pp-profile links has written for the same ranks, lacks a rank's device. Both names may be empty.
class ClassFiles {
 public:
  ClassFiles(std::vector<RankDevice> ranks, const std::string& output, const std::string& cluster);
  /// A profile for each class of equal devices, that of its first rank; the speeds of all into the cluster; and
  /// what was done, on stdout. Warns of what is doubtful.
  void write(const std::vector<Profile>& profiles);

 private:
  void say(const std::vector<Profile>& profiles) const;
  /// Where the cluster has the device of a rank.
  std::size_t device_of(const RankPlace& place) const;

  std::vector<RankDevice> ranks_;
  std::vector<profile::DeviceClass> classes_;
  std::vector<std::string> names_;  ///< of the classes' files
  std::vector<std::unique_ptr<cli::Output>> outputs_;
  std::string cluster_name_;
  Cluster cluster_;
  std::optional<AtomicFile> cluster_file_;
};

}  // namespace pp::profile_tool
