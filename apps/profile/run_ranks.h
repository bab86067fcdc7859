// The same profile by all ranks of mpirun at once, each on its own device; and peaks of measured runs beside
// what pp-plan counts for them.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/cli/output.h"
#include "libprofile/core/cluster.h"
#include "libprofile/core/json_reader.h"
#include "libprofile/core/model/model_graph.h"
#include "libprofile/core/profile.h"
#include "libprofile/estimate/fit_memory.h"
#include "libprofile/estimate/measured_runs.h"
#include "libprofile/report/device_classes.h"
#include "librun/transport/peers.h"

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

/// A run's peak, where it says one, beside the bytes of the fullest worker in the plan of 1F1B with Adam, in
/// stages of equally many blocks, of the model as it is estimated for `device`. Throws pp::Error (usage) with
/// the line for a precision that there is none of or that does not go with the type.
std::optional<profile::PeakRun> peak_of(const profile::MeasuredRun& run, const ModelGraph& model,
                                        const profile::DeviceSpec& device, const TrainerSpec& trainer);

/// What the allocators of CUDA devices reserved at most, by a report of pp-run. Nothing on other devices, whose
/// tensors are counted one by one: no allocator rounds those.
std::optional<profile::PeakRun> peak_of_report(std::string_view text);

}  // namespace pp::profile_tool
