#include "librun/overhead.h"

#include <algorithm>

#include "libplan/price/predict.h"
#include "libplan/search/planner.h"
#include "libprofile/core/error.h"
#include "libprofile/device/machine.h"
#include "libprofile/measure/profiler.h"
#include "libprofile/measure/statistics.h"
#include "libprofile/model/families/families.h"
#include "librun/drive/driver.h"
#include "librun/drive/work.h"
#include "librun/setup/make_setup.h"

namespace pp::run {
namespace {

constexpr int kMicroBatches = 32;
constexpr int kSteps = 12;

class Silence : public Observer, public profile::Observer {
 public:
  void step(const Progress&) override {}
  void epoch(const EpochReport&) override {}
  void progress(std::string_view, double, Seconds) override {}
  void warning(std::string_view) override {}
};

Profile tiny_profile(const profile::DeviceSet& devices) {
  profile::ProfileOptions options = profile::quick({});
  options.micro_batch_sizes = {1};
  options.devices = devices;
  Silence silence;
  return profile::profile_model(model::build_family("mlp:inputs=1,width=1,layers=2,classes=2"), options,
                                silence);
}

Cluster cluster_of(const profile::DeviceSet& devices, int count) {
  Cluster cluster = flat_cluster(count, devices.kind, BytesPerSecond(1e9), Seconds(0), Bytes(0));
  if (devices.kind != DeviceKind::cpu) return cluster;
  const std::vector<int> cores = profile::usable_cores();
  for (int device = 0; device < count; ++device)
    cluster.devices[static_cast<std::size_t>(device)].cores = profile::cores_of(devices, device, cores);
  return cluster;
}

/// All forwards, then all backwards.
plan::Plan tiny_plan(const Profile& profile, const profile::DeviceSet& devices) {
  const int stages = std::min(devices.count, 2);
  plan::PlanRequest request;
  request.mini_batch = kMicroBatches;
  request.micro_batches = kMicroBatches;
  request.schedule = "gpipe";
  request.stages = stages;
  request.replicas.assign(static_cast<std::size_t>(stages), 1);
  request.force_units = true;
  auto plan = plan::find_plan(profile, cluster_of(devices, stages), request);
  if (std::holds_alternative<plan::NoPlan>(plan)) throw Error(ErrorKind::internal, "no plan without limits");
  return std::get<plan::Plan>(std::move(plan));
}

/// Seconds between the starts of neighbouring operations of this kind.
std::vector<double> paces(const WorkerRecord& record, plan::OpKind kind) {
  std::vector<double> seconds;
  for (std::size_t i = 1; i < record.ops.size(); ++i) {
    const plan::OpEvent &before = record.ops[i - 1].event, &op = record.ops[i].event;
    if (before.op.kind == kind && op.op.kind == kind) seconds.push_back((op.start - before.start).count());
  }
  return seconds;
}

TimeStat beyond(const std::vector<double>& paces, Seconds layers) {
  TimeStat time = profile::summarise(paces);
  for (Seconds* part : {&time.median, &time.low, &time.high}) *part = std::max(Seconds(0), *part - layers);
  return time;
}

}  // namespace

OperationOverhead measure_overhead(const profile::DeviceSet& devices) {
  const plan::Plan plan = tiny_plan(tiny_profile(devices), devices);
  RunOptions options;
  options.data = "synthetic";
  options.synthetic_samples = kMicroBatches * kSteps;
  options.steps = kSteps;
  options.evaluate = false;
  Job job(plan, options, make_setup(plan, options));
  Crew crew(job);
  Silence silence;
  const std::function<bool()> never = [] { return false; };
  Driver(job, silence, never).drive();
  crew.join();
  const std::vector<plan::StageCosts>& stages = plan.predicted.stages;
  return {beyond(paces(crew.workers().front()->record(), plan::OpKind::forward), stages.front().forward),
          beyond(paces(crew.workers().back()->record(), plan::OpKind::backward), stages.back().backward)};
}

}  // namespace pp::run
