#include "apps/profile/run_peaks.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "libplan/answer/make_plan.h"
#include "libplan/report/calibration.h"
#include "libprofile/core/blocks.h"
#include "libprofile/core/cluster.h"
#include "libprofile/core/index.h"
#include "libprofile/estimate/estimate.h"

namespace pp::profile_tool {
namespace {

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
  request.micro_batch_size = run.micro_batch;
  request.schedule = "1f1b";
  request.window = plan::WindowRule::win;
  request.cuts = cuts_of(model, run.stages);
  request.stages = run.stages;
  request.replicas.assign(at(run.stages), run.replicas);
  request.optimizer = plan::OptimizerName::adam;
  request.precision = parse_enum<plan::Precision>(run.precision, "precision", ErrorKind::usage);
  if (run.sharded) request.shard = plan::ShardChoice::optimizer;
  request.top = 0;
  return request;
}

}  // namespace

std::optional<profile::PeakRun> peak_of(const profile::MeasuredRun& run, const ModelGraph& model,
                                        const profile::DeviceSpec& device, const TrainerSpec& trainer) {
  if (!run.peak) return std::nullopt;
  return with_context("line " + std::to_string(run.line), [&] {
    const Profile profile = profile::estimate_profile(
        model, device,
        {.micro_batch_sizes = {run.micro_batch},
         .dtype = run.dtype,
         .tensor_degree = run.tensor_degree,
         .sequence_parallel = run.sequence_parallel,
         .checkpoint = run.recompute ? profile::Checkpoint::blocks : profile::Checkpoint::none,
         .trainer = trainer,
         .tensor_link = Link{.bandwidth = kAnyBandwidth}});
    const Cluster cluster = flat_cluster(run.stages * run.replicas, device.kind, kAnyBandwidth, {}, {});
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
