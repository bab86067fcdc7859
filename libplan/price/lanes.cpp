#include "libplan/price/lanes.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "libplan/cost/stage_bytes.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

/// Devices whose messages meet on network cards.
int node_size(const Cluster& cluster) { return cluster.levels.size() < 2 ? 1 : cluster.levels.front().devices; }

/// By how many of the node's replicas have a micro-batch more.
int class_of(int node, int size, int extra) { return std::clamp(extra - node * size, 0, size); }

/// The first replica of the first node that is like the replica's own, and its place there.
int twin_of(int replica, int size, int extra) {
  int node = replica / size;
  while (node > 0 && class_of(node - 1, size, extra) == class_of(node, size, extra)) --node;
  return node * size + replica % size;
}

/// Whether every stage has its replicas in turn on devices of whole nodes, no two of one piece of hardware.
bool is_in_lanes(const Assignment& whole, const Cluster& cluster, int replicas) {
  const int size = node_size(cluster);
  std::set<Hardware> hardware;
  for (const int device : whole.worker_devices) hardware.insert(hardware_of(cluster.devices[at(device)]));
  if (hardware.size() < whole.worker_devices.size()) return false;
  for (int s = 0; s < whole.stages(); ++s) {
    const std::vector<int>& workers = whole.stage_workers[at(s)];
    if (std::ssize(workers) != replicas) return false;
    for (int r = 0; r < replicas; ++r) {
      if (workers[at(r)] != s * replicas + r || whole.programs[at(workers[at(r)])].stream) return false;
      const int device = whole.worker_devices[at(workers[at(r)])];
      if (device % size != r % size ||
          device / size != whole.worker_devices[at(workers[at(r - r % size)])] / size)
        return false;
    }
  }
  return true;
}

/// Whether both run the same, the one `ahead` micro-batches behind the other.
bool runs_ahead(const Program& program, const Program& twin, int ahead) {
  return std::ranges::equal(program, twin, [&](Op op, const Op& other) {
    if (has_micro_batch(op.kind)) op.micro_batch -= ahead;
    return op == other;
  });
}

}  // namespace

std::vector<int> kept_lanes(int replicas, int micro_batches, const Cluster& cluster) {
  const int size = node_size(cluster), extra = micro_batches % replicas;
  std::vector<int> kept;
  int last = -1, run = 0;  // class, and nodes of it
  const bool one_class = extra == 0;
  for (int node = 0; node * size < replicas && replicas % size == 0; ++node) {
    const int here = class_of(node, size, extra);
    run = here == last ? run + 1 : 1;
    last = here;
    for (int place = 0; run <= (one_class ? 2 : 1) && place < size; ++place)
      kept.push_back(node * size + place);
  }
  if (!kept.empty() && std::ssize(kept) < replicas && micro_batches >= replicas) return kept;
  kept.resize(at(replicas));
  std::iota(kept.begin(), kept.end(), 0);
  return kept;
}

std::optional<Lanes> few_lanes(const Assignment& whole, const Cluster& cluster) {
  const int replicas = static_cast<int>(whole.stage_workers.front().size());
  if (!whole.synchronous || whole.rules != RuleSet::standard || cluster.levels.size() > 2) return std::nullopt;
  const std::vector<int> kept = kept_lanes(replicas, whole.micro_batches, cluster);
  const int count = static_cast<int>(kept.size());
  if (count == replicas || !is_in_lanes(whole, cluster, replicas)) return std::nullopt;
  const int size = node_size(cluster), extra = whole.micro_batches % replicas;
  const auto place = [&](int lane) {
    return static_cast<int>(std::ranges::lower_bound(kept, lane) - kept.begin());
  };
  Lanes lanes;
  lanes.few = {.stage_layers = whole.stage_layers,
               .stage_workers = {},
               .worker_devices = {},
               .programs = {},
               .recompute = whole.recompute,
               .micro_batches = 0,
               .synchronous = whole.synchronous,
               .policy = whole.policy,
               .shard = whole.shard,
               .rules = whole.rules};
  for (const int lane : kept)
    lanes.few.micro_batches += whole.micro_batches / replicas + (lane < extra ? 1 : 0);
  for (int s = 0; s < whole.stages(); ++s) {
    for (int r = 0; r < replicas; ++r) {
      const int twin = twin_of(r, size, extra), worker = s * replicas + r;
      const Program& program = whole.programs[at(worker)].program;
      if (!runs_ahead(program, whole.programs[at(s * replicas + twin)].program, r - twin)) return std::nullopt;
      lanes.stands_for.push_back(s * count + place(twin));
    }
    auto& workers = lanes.few.stage_workers.emplace_back();
    for (const int lane : kept) {
      workers.push_back(static_cast<int>(lanes.few.programs.size()));
      lanes.few.worker_devices.push_back(whole.worker_devices[at(s * replicas + lane)]);
      WorkerProgram& worker = lanes.few.programs.emplace_back(whole.programs[at(s * replicas + lane)]);
      for (Op& op : worker.program) {
        if (!has_micro_batch(op.kind)) continue;
        if (op.micro_batch % replicas != lane) return std::nullopt;
        op.micro_batch = op.micro_batch / replicas * count + place(lane);
      }
    }
  }
  return lanes;
}

}  // namespace pp::plan
