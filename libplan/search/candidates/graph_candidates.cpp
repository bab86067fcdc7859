#include "libplan/search/candidates/graph_candidates.h"

#include <algorithm>

#include "libplan/cost/links.h"
#include "libplan/schedule/versions.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

std::vector<Point> points(const SearchCase& what, const Lattice& lattice, const SearchSpace& space,
                          const ChainCost& cost, double near) {
  if (what.synchronous) return search_lattice_points(lattice, space, cost, near).points;
  BottleneckResult best = search_lattice_bottleneck(lattice, space, cost);
  if (!best.feasible() || best.value > near) return {};
  return {{std::move(best.partition), best.value, 0}};
}

/// Of all, as the bound's chain has one of them.
double all_time(const MicroBatches& batch) { return batch.total(&MicroBatches::time) / batch.least_time(); }

/// An entry for 1, 2, .. replicas, as far as a search has come.
class LeastForms {
 public:
  explicit LeastForms(const Cluster& cluster) : cluster_(cluster) {}
  const std::vector<AllReduceForm>& of(int replicas) {
    while (std::ssize(forms_) < replicas)
      forms_.push_back(least_all_reduce_forms(cluster_, static_cast<int>(forms_.size()) + 1));
    return forms_[at(replicas - 1)];
  }

 private:
  const Cluster& cluster_;
  std::vector<std::vector<AllReduceForm>> forms_;
};

/// A layer alone on as many replicas as it likes: its own work, all-reduce and update.
double least_load(const SearchCase& what, LeastForms& forms, int layer, int most_replicas, double known) {
  double least = std::numeric_limits<double>::infinity();
  const Chain& chain = what.bound_chain;
  const LoadKind kind = what.synchronous ? LoadKind::steady : LoadKind::period;
  const LayerSums sums = chain.between(layer, layer + 1);
  LoadTerms alone{.forward = sums.times.forward, .backward = sums.times.backward, .fixed = chain.fixed};
  const bool sharded = what.memory.in_flight().sharded;
  const double unit = what.micro_batches.least_time();  // of the bound's chain
  const double overlap = what.all_reduce_overlap * what.micro_batches.most_time() / unit;
  for (alone.replicas = 1; alone.replicas <= most_replicas && least > known; ++alone.replicas) {
    const int q = alone.replicas;
    alone.turns = what.micro_batches.turns(q, &MicroBatches::time) / unit;
    if (!is_served(what.memory.in_flight().policy))
      alone.all_reduce = cheapest(forms.of(q), chain.reduction(layer, layer + 1, sharded));
    alone.update = chain.stage_update(layer, layer + 1, sharded ? q : 1);
    least = std::min(least, stage_load(kind, alone, all_time(what.micro_batches), overlap));
  }
  return least;
}

}  // namespace

GraphCandidateList find_graph_candidates(const SearchCase& what, const Lattice& lattice,
                                         const SearchSpace& space, int layers, const SearchLimits& limits) {
  GraphCandidateList list;
  const ChainCost cost = objective_cost(what, space);
  for (const Point& point : points(what, lattice, space, cost, limits.near))
    list.candidates.push_back(
        {linear(lattice, point.partition, layers), point.load + (cost.base() + point.sum)});
  list.bound = lattice_bound(lattice, space, bound_cost(what, space), limits.enough);
  return list;
}

double order_free_bound(const SearchCase& what, const SearchSpace& space) {
  const int layers = what.bound_chain.size();
  const Chain& chain = what.bound_chain;
  const double work = chain.stage_compute(0, layers);
  const double way = chain.way(0, layers) + chain.fixed.forward + chain.fixed.backward;
  double bound = std::max(what.synchronous ? way : 0, all_time(what.micro_batches) * work / space.devices);
  LeastForms forms(what.cluster);
  for (int layer = 0; layer + 1 < layers; ++layer)  // the last position holds the loss, in this order only
    bound = std::max(bound, least_load(what, forms, layer, space.replica_limit(), bound));
  return bound;
}

}  // namespace pp::plan
