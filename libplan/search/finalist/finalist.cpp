#include "libplan/search/finalist/finalist.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <tuple>

#include "libplan/cost/stage_memory.h"
#include "libplan/price/tied_copies.h"
#include "libplan/request/shapes.h"
#include "libplan/schedule/queues.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

auto rank(const Finalist& finalist) {
  return std::tuple(finalist.ranked_step(), finalist.workers(), finalist.partition.size());
}
/// Decides between those that rank() does not tell apart, which are few: it copies.
auto rank_of_equals(const Finalist& finalist) {
  return std::tuple(recomputed_layers(finalist.again, finalist.assignment), finalist.peak(),
                    finalist.schedule->name, stages_text(finalist.partition), replicas_text(finalist.partition),
                    finalist.micro_batches, finalist.assignment.stage_layers, finalist.devices,
                    finalist.windows, finalist.prefetch, recompute_text(finalist.again),
                    finalist.assignment.recompute, finalist.shared());
}

double to_rounded(double seconds) {
  constexpr int kBits = 36;
  int exponent = 0;
  const double mantissa = std::frexp(seconds, &exponent);
  return std::ldexp(std::round(std::ldexp(mantissa, kBits)), exponent - kBits);
}

const Device& device_of(const Finalist& finalist, const Cluster& cluster, int worker) {
  const int position = finalist.devices[at(worker)];
  return cluster.devices[at(position)];
}

/// The workers on each piece of hardware.
std::map<Hardware, std::vector<int>> workers_by_hardware(const Finalist& finalist, const Cluster& cluster) {
  std::map<Hardware, std::vector<int>> workers;
  const int count = finalist.workers();
  for (int w = 0; w < count; ++w) workers[hardware_of(device_of(finalist, cluster, w))].push_back(w);
  return workers;
}

}  // namespace

std::int64_t Finalist::peak() const {
  std::int64_t peak = 0;
  for (const WorkerPrediction& worker : prediction.workers) peak = std::max(peak, worker.memory.peak.value);
  return peak;
}

Shard Finalist::shared() const {
  const bool replicated = placed ? pipelines > 1 || placed->stage_workers.front().size() > 1
                                 : std::ranges::any_of(
                                       partition, [](int q) { return q > 1; }, &StageRange::replicas);
  return replicated ? shard : Shard::none;
}

bool Finalist::holds_more() const {
  if (windows.empty() || !schedule->synchronous) return false;
  const std::vector<int> classic = plan::windows(WindowRule::win, replicas_of(partition));
  return !std::ranges::equal(windows, classic, std::less_equal());
}

double Finalist::rounded_step() const { return to_rounded(prediction.step.count()); }

double Finalist::ranked_step() const {
  constexpr double kLeastGain = 1.01;  // what more memory than 1F1B is known for must be worth
  return holds_more() ? to_rounded(kLeastGain * prediction.step.count()) : rounded_step();
}

bool ranks_before(const Finalist& a, const Finalist& b) {
  const auto one = rank(a), other = rank(b);
  return one != other ? one < other : rank_of_equals(a) < rank_of_equals(b);
}

bool has_free_windows(const Finalist& finalist, const PlanRequest& request) {
  return !request.window && finalist.schedule->windowed &&
         is_free_shape(*finalist.schedule, policy_of(*finalist.schedule, request));
}

Assignment assign(const Finalist& finalist, const PlanGraph& graph, const PlanRequest& request) {
  Assignment assignment;
  assignment.stage_layers = stage_layers(finalist.partition, finalist.order);
  int worker = 0;
  for (const StageRange& stage : finalist.partition) {
    auto& workers = assignment.stage_workers.emplace_back();
    for (int q = 0; q < stage.replicas; ++q) workers.push_back(worker++);
  }
  assignment.worker_devices.assign(finalist.devices.begin(), finalist.devices.begin() + worker);
  assignment.micro_batches = finalist.micro_batches;
  assignment.synchronous = finalist.schedule->synchronous;
  assignment.rules = finalist.schedule->rules;
  assignment.policy = policy_of(*finalist.schedule, request);
  assignment.shard = finalist.shard;
  const bool own = !finalist.windows.empty();
  assignment.programs = make_schedule({.name = std::string(finalist.schedule->name),
                                       .replicas = replicas_of(finalist.partition),
                                       .micro_batches = finalist.micro_batches,
                                       .window = own ? WindowRule::explicit_list : window_of(request),
                                       .windows = own ? finalist.windows : request.windows,
                                       .weight_policy = assignment.policy})
                            .workers;
  std::vector<int> stage_of(graph.layers.size());
  for (int s = 0; s < assignment.stages(); ++s) {
    for (const int layer : assignment.stage_layers[at(s)]) stage_of[at(layer)] = s;
  }
  add_tied_reductions(assignment.programs, tied_copies(graph, stage_of), assignment.stage_workers);
  return assignment;
}

bool is_endless(const Assignment& assignment) {
  if (assignment.synchronous) return false;
  std::vector<const Stream*> streams;
  for (const WorkerProgram& worker : assignment.programs) streams.push_back(&*worker.stream);
  return !stream_length(streams, assignment.stage_workers, assignment.micro_batches, assignment.policy);
}

bool skips_readers(const Finalist& finalist, const PlanGraph& graph) {
  if (finalist.schedule->rules != RuleSet::clocked) return false;
  std::vector<int> stage_of(graph.layers.size());
  for (std::size_t s = 0; s < finalist.partition.size(); ++s)
    for (int p = finalist.partition[s].begin; p < finalist.partition[s].end; ++p)
      stage_of[at(finalist.order[at(p)])] = static_cast<int>(s);
  for (std::size_t l = 0; l < graph.layers.size(); ++l)
    for (const int reader : graph.layers[l].consumers)
      if (stage_of[at(reader)] > stage_of[l] + 1) return true;
  return false;
}

std::vector<Bytes> worker_limits(const Finalist& finalist, const Cluster& cluster, const PlanRequest& request) {
  std::vector<Bytes> limits(at(finalist.workers()));
  for (const auto& [hardware, sharers] : workers_by_hardware(finalist, cluster)) {
    for (const int w : sharers) {
      const Device& device = device_of(finalist, cluster, w);
      const Bytes limit = Bytes(usable_bytes(device, request)) - request.context_bytes;
      limits[at(w)] = sharers.size() == 1 ? limit : Bytes(limit.value / std::ssize(sharers));
    }
  }
  return limits;
}

Bytes simulated_shortage(const Finalist& finalist, const Cluster& cluster, const PlanRequest& request) {
  Bytes shortage(std::numeric_limits<std::int64_t>::min());
  for (const auto& [hardware, sharers] : workers_by_hardware(finalist, cluster)) {
    const Bytes most(std::numeric_limits<std::int64_t>::max() / 2 /
                     std::ssize(sharers));  // their sum is a number
    Bytes peaks;
    for (const int w : sharers) peaks += std::min(most, finalist.prediction.workers[at(w)].memory.peak);
    for (const int w : sharers) {
      const Bytes usable(usable_bytes(device_of(finalist, cluster, w), request));
      shortage = std::max(shortage, peaks + request.context_bytes - usable);
    }
  }
  return shortage;
}

std::string stages_text(const Partition& partition) {
  std::string text;
  for (const StageRange& stage : partition) {
    text.append(text.empty() ? "" : "|").append(std::to_string(stage.end - stage.begin));
  }
  return text;
}

std::string replicas_text(const Partition& partition) {
  std::string text;
  for (const StageRange& stage : partition)
    text.append(text.empty() ? "" : "-").append(std::to_string(stage.replicas));
  return text;
}

std::vector<std::vector<int>> stage_layers(const Partition& partition, const std::vector<int>& order) {
  std::vector<std::vector<int>> stages;
  for (const auto& [begin, end, replicas] : partition) {
    stages.emplace_back(order.begin() + begin, order.begin() + end);
    std::sort(stages.back().begin(), stages.back().end());
  }
  return stages;
}

}  // namespace pp::plan
