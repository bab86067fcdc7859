#include "libplan/cost/stage_cost.h"

#include <algorithm>
#include <numeric>

#include "libprofile/core/index.h"

namespace pp::plan {

ReplicaCounts::ReplicaCounts(const SearchSpace& space, const StageCost& cost)
    : places_(at(space.replica_limit()) + 1, 0) {
  int unit = 0;
  for (int count = std::max(space.min_replicas, 1); count <= space.replica_limit(); ++count) {
    const bool given = std::ranges::count(space.replicas, count) > 0;
    if (!space.replicas.empty() && !given) continue;
    if (!given && count > space.min_replicas && cost.is_dominated(count)) continue;
    places_[at(count)] = size();
    counts_.push_back(count);
    unit = std::gcd(unit, count);
  }
  unit_ = std::max(unit, 1);
}

int device_count(const Partition& partition) {
  int devices = 0;
  for (const StageRange& stage : partition) devices += stage.replicas;
  return devices;
}

std::vector<int> replicas_of(const Partition& partition) {
  std::vector<int> replicas;
  for (const StageRange& stage : partition) replicas.push_back(stage.replicas);
  return replicas;
}

std::vector<int> cuts_of(const Partition& partition) {
  std::vector<int> cuts;
  for (const StageRange& stage : partition) {
    if (stage.begin != 0) cuts.push_back(stage.begin);
  }
  return cuts;
}

std::vector<DeviceSpan> spans_of(const Partition& partition) {
  std::vector<DeviceSpan> spans(partition.size());
  int first = 0;
  for (std::size_t s = partition.size(); s-- > 0;) {
    spans[s] = {first, partition[s].replicas};
    first += partition[s].replicas;
  }
  return spans;
}

std::vector<char> falling(const StageCost& cost, int devices) {
  std::vector<char> falls(at(devices) + 1);
  for (int replicas = 1; replicas <= devices; ++replicas) falls[at(replicas)] = cost.may_fall(replicas) ? 1 : 0;
  return falls;
}

double largest_load(const Partition& partition, int layers, const StageCost& cost) {
  const std::vector<DeviceSpan> spans = spans_of(partition);
  double load = 0;
  for (std::size_t s = 0; s < partition.size(); ++s) {
    const auto& [begin, end, replicas] = partition[s];
    load = std::max(load, cost.stage(begin, end, spans[s]));
    if (begin != 0) load = std::max(load, cost.cut(begin, spans[s], CutSide::in));
    if (end != layers) load = std::max(load, cost.cut(end, spans[s], CutSide::out));
  }
  return load;
}

double sum_of(const Partition& partition, int layers, const StageCost& cost) {
  const std::vector<DeviceSpan> spans = spans_of(partition);
  double sum = 0;
  for (std::size_t s = partition.size(); s-- > 0;) {
    const auto& [begin, end, replicas] = partition[s];
    if (end != layers) sum += cost.fill(end, spans[s]);
    sum += cost.passage(end, spans[s]) - cost.passage(begin, spans[s]);
  }
  return sum;
}

double objective_of(const Partition& partition, int layers, const StageCost& cost) {
  return largest_load(partition, layers, cost) + (cost.base() + sum_of(partition, layers, cost));
}

double hideable(std::span<const LayerGradient> layers, double all_reduce) {
  double bytes = 0;
  for (const LayerGradient& layer : layers) bytes += static_cast<double>(layer.bytes);
  if (bytes == 0) return 0;
  double time = 0;  // of the backward so far
  double free = 0;  // when the sums so far are done
  std::int64_t bucket = 0;
  for (std::size_t i = layers.size(); i-- > 0;) {
    time += layers[i].backward;
    bucket += layers[i].bytes;
    if (i > 0 && bucket < kBucket.value) continue;
    free = std::max(free, time) + all_reduce * static_cast<double>(bucket) / bytes;
    bucket = 0;
  }
  return std::max(0.0, all_reduce - (free - time));
}

}  // namespace pp::plan
