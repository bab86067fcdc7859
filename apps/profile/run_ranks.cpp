#include "apps/profile/run_ranks.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "apps/cli/progress.h"
#include "apps/cli/table.h"
#include "apps/profile/tables.h"
#include "libplan/answer/make_plan.h"
#include "libplan/report/calibration.h"
#include "libprofile/core/blocks.h"
#include "libprofile/core/cluster.h"
#include "libprofile/core/error.h"
#include "libprofile/core/index.h"
#include "libprofile/device/process.h"
#include "libprofile/estimate/estimate.h"
#include "librun/links/rank_links.h"

namespace pp::profile_tool {

namespace {

/// What `mine` returns, or why there is none.
std::string outcome_of(const std::function<Json()>& mine) {
  try {
    return Json{{"value", mine()}}.dump();
  } catch (const Error& error) {
    return Json{{"kind", static_cast<int>(error.kind())},
                {"error", error.what()},
                {"host", profile::measurement_context()["host"]}}
        .dump();
  }
}

/// On rank 0 throws what one of them could not do.
std::vector<Json> values_of(const std::vector<std::string>& texts, bool first) {
  std::vector<Json> values;
  for (const std::string& text : texts) {
    Json one = Json::parse(text);
    if (one.contains("value")) {
      values.push_back(std::move(one["value"]));
    } else if (first) {
      throw Error(static_cast<ErrorKind>(one["kind"].get<int>()),
                  (values.empty() ? ""
                                  : "rank " + std::to_string(values.size()) + " on " +
                                        one["host"].get<std::string>() + ": ") +
                      one["error"].get<std::string>());
    } else {
      throw SaidByFirst();
    }
  }
  return values;
}

/// `p.json` for one class, `p-CLASS.json` for several.
std::string class_file(const std::string& output, const std::string& name, bool alone) {
  if (alone || output.empty()) return output;
  const std::filesystem::path path(output);
  return (path.parent_path() / (path.stem().string() + "-" + name + path.extension().string())).string();
}

/// Bytes do not depend on links.
constexpr BytesPerSecond kAnyBandwidth{1e11};

/// The cuts between stages of equally many blocks.
std::vector<int> cuts_of(const ModelGraph& model, int stages) {
  const std::vector<Block> blocks = blocks_of(model);
  std::vector<int> cuts;
  for (int stage = 1; stage < stages; ++stage)
    cuts.push_back(blocks[at(stage * static_cast<int>(blocks.size()) / stages)].begin);
  return cuts;
}

Bytes fullest(const plan::Plan& plan) {
  Bytes most;
  for (const plan::WorkerPrediction& worker : plan.predicted.workers) most = std::max(most, worker.memory.peak);
  return most;
}

plan::PlanRequest request_of(const profile::MeasuredRun& run, const ModelGraph& model) {
  plan::PlanRequest request;
  request.mini_batch = run.micro_batch * run.micro_batches * run.replicas;
  request.micro_batch_size = run.micro_batch * run.shard_group.degree;
  request.schedule = "1f1b";
  request.window = plan::WindowRule::win;
  request.cuts = cuts_of(model, run.stages);
  request.stages = run.stages;
  request.replicas.assign(at(run.stages), run.replicas / run.shard_group.degree);
  request.optimizer = OptimizerName::adam;
  request.precision = parse_enum<plan::Precision>(run.precision, "precision", ErrorKind::usage);
  if (run.sharded) request.shard = plan::ShardChoice::optimizer;
  request.top = 0;
  return request;
}

}  // namespace

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

std::vector<Json> exchange(run::Peers& peers, const std::function<Json()>& mine) {
  return values_of(run::gather(peers, outcome_of(mine)), peers.rank() == 0);
}

std::vector<Profile> gather_profiles(run::Peers& peers, const std::function<Profile()>& measure) {
  const auto texts = run::gather(peers, outcome_of([&] { return to_json(measure()); }));
  std::vector<Profile> profiles;
  for (const Json& one : values_of(texts, peers.rank() == 0)) profiles.push_back(profile_from_json(one));
  return profiles;
}

ClassFiles::ClassFiles(std::vector<RankDevice> ranks, const std::string& output, const std::string& cluster)
    : ranks_(std::move(ranks)), cluster_name_(cluster) {
  std::vector<ProfiledDevice> devices;
  for (const RankDevice& rank : ranks_) devices.push_back(rank.device);
  classes_ = profile::device_classes(devices);
  if (output == "-" && classes_.size() > 1)
    throw Error(ErrorKind::usage,
                "the ranks have " + std::to_string(classes_.size()) +
                    " classes of devices, and standard output takes one profile; name a file");
  if (!cluster.empty()) {
    cluster_ = cli::load(cluster, parse_cluster);
    for (const RankDevice& rank : ranks_) device_of(rank.place);
    cluster_file_.emplace(cluster);
  }
  for (const profile::DeviceClass& one : classes_) {
    names_.push_back(class_file(output, one.name, classes_.size() == 1));
    outputs_.push_back(std::make_unique<cli::Output>(names_.back()));
  }
}

// By their order: each of several GPUs that only its rank sees has the number 0.
std::size_t ClassFiles::device_of(const RankPlace& place) const {
  int before = 0;
  for (std::size_t d = 0; d < cluster_.devices.size(); ++d) {
    if (cluster_.devices[d].node == place.host && before++ == place.on_host) return d;
  }
  throw Error(ErrorKind::data, cluster_name_ + ": no device " + std::to_string(place.on_host) + " on node " +
                                   place.host +
                                   "; measure the links by as many ranks: mpirun ... pp-profile links");
}

void ClassFiles::write(const std::vector<Profile>& profiles) {
  std::vector<std::string> names;
  for (const RankDevice& rank : ranks_)
    names.push_back("rank " + std::to_string(names.size()) + " on " + rank.place.host);
  tell_of_scores(profiles.front().model);
  profile::set_speeds(classes_, profiles);
  for (const std::string& finding : profile::class_findings(profiles, classes_, names)) cli::warn(finding);
  for (std::size_t c = 0; c < classes_.size(); ++c) {
    const auto first = static_cast<std::size_t>(classes_[c].members.front());
    outputs_[c]->write(dump_json(to_json(profiles[first])));
    if (!cluster_file_) continue;
    for (const int member : classes_[c].members) {
      const RankPlace& place = ranks_[static_cast<std::size_t>(member)].place;
      cluster_.devices[device_of(place)].speed = classes_[c].speed;
    }
  }
  if (cluster_file_) {
    cluster_file_->write(dump_json(to_json(cluster_)));
    cluster_file_->commit();
  }
  if (!outputs_.front()->is_stdout()) say(profiles);
}

void ClassFiles::say(const std::vector<Profile>& profiles) const {
  for (std::size_t c = 0; c < classes_.size(); ++c) {
    std::string ranks;
    for (const int member : classes_[c].members) ranks += (ranks.empty() ? "" : " ") + std::to_string(member);
    const Profile& first = profiles[static_cast<std::size_t>(classes_[c].members.front())];
    std::cout << "class " << classes_[c].name << " (" << first.device.name << "): ranks " << ranks << ", speed "
              << cli::cell(classes_[c].speed) << (names_[c].empty() ? "" : ", " + names_[c]) << '\n';
  }
}

std::optional<profile::PeakRun> peak_of(const profile::MeasuredRun& run, const ModelGraph& model,
                                        const profile::DeviceSpec& device, const TrainerSpec& trainer) {
  if (!run.peak) return std::nullopt;
  return with_context("line " + std::to_string(run.line), [&] {
    const Profile profile = profile::estimate_profile(
        model, device,
        {.micro_batch_sizes = {run.micro_batch},
         .dtype = run.dtype,
         .tensor_degree = run.tensor_degree,
         .context_degree = run.context_degree,
         .shard_group = run.shard_group,
         .sequence_parallel = run.sequence_parallel,
         .checkpoint = run.recompute ? profile::Checkpoint::blocks : profile::Checkpoint::none,
         .trainer = trainer,
         .tensor_link = Link{.bandwidth = kAnyBandwidth},
         .context_link = Link{.bandwidth = kAnyBandwidth},
         .shard_link = Link{.bandwidth = kAnyBandwidth}});
    const int groups = run.replicas / run.shard_group.degree;
    const Cluster cluster = flat_cluster(run.stages * groups, device.kind, kAnyBandwidth, {}, {});
    const auto found = plan::make_plan(profile, cluster, request_of(run, model));
    if (const auto* none = std::get_if<plan::Infeasible>(&found)) throw Error(ErrorKind::usage, none->reason);
    return std::optional(profile::PeakRun{fullest(std::get<plan::Plan>(found)), *run.peak - trainer.process});
  });
}

std::optional<profile::PeakRun> peak_of_report(std::string_view text) {
  const std::string suffix = " reserved_peak_bytes";
  const plan::Plan plan = plan::parse_measured_run(text).plan;
  const Json json = parse_json(text);
  ObjectReader report(json, "");
  Bytes reserved;
  report.members("context", [&](const std::string& key, const Json& value, const std::string& pointer) {
    if (key.starts_with("cuda:") && key.ends_with(suffix) && value.is_string())
      reserved = std::max(reserved, parse_bytes(value.get<std::string>(), pointer));
  });
  if (reserved == Bytes(0)) return std::nullopt;
  return profile::PeakRun{fullest(plan), reserved};
}

}  // namespace pp::profile_tool
