#include "apps/profile/run_ranks.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <span>

#include "apps/cli/log.h"
#include "apps/cli/output.h"
#include "apps/cli/table.h"
#include "libprofile/core/cluster.h"
#include "libprofile/core/error.h"
#include "libprofile/core/file.h"
#include "libprofile/core/json_reader.h"
#include "libprofile/device/cores.h"
#include "libprofile/device/process.h"
#include "libprofile/report/device_classes.h"
#include "librun/links/rank_calls.h"

namespace pp::profile_tool {
namespace {

/// The profile, or why there is none.
Json outcome_of(const std::function<Profile()>& measure) {
  try {
    return {{"profile", to_json(measure())}};
  } catch (const Error& error) {
    return {{"kind", static_cast<int>(error.kind())}, {"error", error.what()}};
  }
}

/// Speeds of the ranks' classes, for the devices that `pp-profile links` found on the same ranks.
void write_speeds(const std::string& path, const std::vector<RankProfile>& profiles,
                  const std::vector<profile::DeviceClass>& classes) {
  Cluster cluster = cli::load(path, parse_cluster);
  for (const profile::DeviceClass& one : classes) {
    for (const int member : one.members) {
      const RankPlace& place = profiles[static_cast<std::size_t>(member)].place;
      const auto device = std::ranges::find_if(cluster.devices, [&](const Device& candidate) {
        return candidate.node == place.host && candidate.index == place.on_host;
      });
      if (device == cluster.devices.end())
        throw Error(ErrorKind::data, path + ": no device " + std::to_string(place.on_host) + " on node " +
                                         place.host +
                                         "; measure the links by as many ranks: mpirun ... pp-profile links");
      device->speed = one.speed;
    }
  }
  write_file(path, dump_json(to_json(cluster)));
}

void say_classes(const std::vector<RankProfile>& profiles, const std::vector<profile::DeviceClass>& classes,
                 const std::string& output) {
  for (const profile::DeviceClass& one : classes) {
    std::string ranks;
    for (const int member : one.members) ranks += (ranks.empty() ? "" : " ") + std::to_string(member);
    const Profile& first = profiles[static_cast<std::size_t>(one.members.front())].profile;
    const std::string file = class_file(output, one.name, classes.size() == 1);
    std::cout << "class " << one.name << " (" << first.device.name << "): ranks " << ranks << ", speed "
              << cli::cell(one.speed) << (file.empty() ? "" : ", " + file) << '\n';
  }
}

}  // namespace

RankPlace place_of_rank(run::Peers& peers) {
  const std::string host = profile::measurement_context()["host"];
  const std::string cores = profile::list_cores(profile::usable_cores());
  RankPlace mine{.host = host};
  const std::vector<std::string> all = run::gather(peers, Json{host, cores}.dump());
  for (const std::string& before : std::span(all).first(static_cast<std::size_t>(peers.rank()))) {
    const Json there = Json::parse(before);
    if (there[0] == host) ++mine.on_host;
    if (there == Json{host, cores}) ++mine.beside;
  }
  return mine;
}

std::vector<RankProfile> gather_profiles(run::Peers& peers, const RankPlace& place,
                                         const std::function<Profile()>& measure) {
  Json mine = outcome_of(measure);
  mine["place"] = {place.host, place.on_host, place.beside};
  const std::vector<std::string> all = run::gather_at_first(peers, mine.dump());
  std::vector<RankProfile> found;
  for (const std::string& text : all) {
    const Json one = Json::parse(text);
    const RankPlace where{one["place"][0], one["place"][1], one["place"][2]};
    if (one.contains("error"))
      throw Error(static_cast<ErrorKind>(one["kind"].get<int>()),
                  (found.empty() ? "" : "rank " + std::to_string(found.size()) + " on " + where.host + ": ") +
                      one["error"].get<std::string>());
    found.push_back({where, profile_from_json(one["profile"])});
  }
  return found;
}

void write_classes(const std::vector<RankProfile>& all, const std::string& output, const std::string& cluster) {
  std::vector<Profile> profiles;
  std::vector<std::string> names;
  for (const RankProfile& one : all) {
    names.push_back("rank " + std::to_string(profiles.size()) + " on " + one.place.host);
    profiles.push_back(one.profile);
  }
  const std::vector<profile::DeviceClass> classes = profile::device_classes(profiles);
  if (output == "-" && classes.size() > 1)
    throw Error(ErrorKind::usage,
                "the ranks have " + std::to_string(classes.size()) +
                    " classes of devices, and standard output takes one profile; name a file");
  for (const std::string& finding : profile::class_findings(profiles, classes, names)) cli::warn(finding);
  for (const profile::DeviceClass& one : classes) {
    cli::Output file(class_file(output, one.name, classes.size() == 1));
    file.write(dump_json(to_json(profiles[static_cast<std::size_t>(one.members.front())])));
  }
  if (!cluster.empty()) write_speeds(cluster, all, classes);
  if (output != "-") say_classes(all, classes, output);
}

std::string class_file(const std::string& output, const std::string& name, bool alone) {
  if (alone || output.empty() || output == "-") return output;
  const std::filesystem::path path(output);
  return (path.parent_path() / (path.stem().string() + "-" + name + path.extension().string())).string();
}

}  // namespace pp::profile_tool
