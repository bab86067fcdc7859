#include "libplan/cost/cluster_bound.h"

#include <algorithm>

namespace pp::plan {

ClusterBound::ClusterBound(const Chain& chain, const OrderedDevices& devices, const OrderedOptions& options,
                           const InFlight& in_flight, std::int64_t context)
    : chain_(chain), options_(options), best_link_(fastest_link(devices.cluster)) {
  std::vector<double> speeds;
  for (const int position : devices.positions)
    speeds.push_back(devices.cluster.devices[static_cast<std::size_t>(position)].speed / options.chain_speed);
  std::vector<std::int64_t> sizes(devices.bytes.begin(), devices.bytes.end());
  std::ranges::sort(speeds, std::greater<>());
  std::ranges::sort(sizes, std::greater<>());
  for (std::size_t q = 0; q < speeds.size(); ++q) {
    const MemoryLimit limit{sizes[q], context};
    const StageMemory& memory = memories_.try_emplace(sizes[q], chain, in_flight, limit).first->second;
    const RecomputeTime& again = again_.try_emplace(sizes[q], chain, &memory, options.recompute).first->second;
    by_replicas_.push_back(
        {1 / speeds[q], least_all_reduce_forms(devices.cluster, static_cast<int>(q) + 1), &memory, &again});
    speeds_ += speeds[q];
  }
}

double ClusterBound::stage(int begin, int end, int replicas) const {
  const ByReplicas& on = by(replicas);
  const double f = chain_.stage_forward(begin, end) * on.slowness;
  const double b = chain_.stage_backward(begin, end) * on.slowness;
  const double update = chain_.stage_update(begin, end) * on.slowness;
  const double all_reduce = cheapest(on.all_reduce, chain_.sum(chain_.weights, begin, end));
  const double overlap = options_.all_reduce_overlap;
  const double n = (options_.micro_batches + replicas - 1) / replicas;
  const double again = n * on.again->seconds(begin, end, replicas, n) * on.slowness;
  const double work = n * f + std::max(n * b, (n - overlap) * b + all_reduce) + again + update;
  if (options_.kind == OrderedKind::period) return work * options_.micro_batches / (n * replicas);
  // The stages in front at full speed, then n micro-batches; written so that it never falls, in doubles too.
  const double fixed = n * on.slowness * (chain_.fixed.forward + chain_.fixed.backward);
  const double filled =
      chain_.compute(0, end) + (n * on.slowness - 1) * chain_.compute(begin, end) + fixed + again;
  return std::max(filled, work);
}

double ClusterBound::cut(int boundary, int replicas, CutSide side) const {
  if (options_.kind != OrderedKind::period) return 0;
  const auto k = static_cast<std::size_t>(boundary);
  const double bytes = side == CutSide::in ? chain_.least_in[k] : chain_.least_out[k];
  return options_.micro_batches * occupancy(bytes, best_link_) / replicas;
}

bool ClusterBound::fits(int begin, int end, int replicas, int later) const {
  return by(replicas).memory->fits_at_least(begin, end, replicas, later);
}

double ClusterBound::shared_work() const {
  return options_.micro_batches * chain_.compute(0, chain_.size()) / speeds_;
}

}  // namespace pp::plan
