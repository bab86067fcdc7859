#include "libplan/search/candidates/graph_candidates.h"

#include <algorithm>

namespace pp::plan {
namespace {

std::vector<SynchronousPoint> points(const SearchCase& what, const Lattice& lattice, const SearchSpace& space) {
  if (!what.synchronous) {
    BottleneckResult best = search_lattice_bottleneck(lattice, space, make_load(what, space, LoadKind::period));
    if (!best.feasible()) return {};
    return {{std::move(best.partition), best.value, 0}};
  }
  const double base = what.chain.stage_compute(0, lattice.size() - 1);
  SynchronousResult best = search_lattice_synchronous(lattice, space, make_load(what, space, LoadKind::step),
                                                      fill_times(what.chain, what.link), base);
  for (SynchronousPoint& point : best.points) point.theta += base;
  return std::move(best.points);
}

/// A layer alone on as many replicas as it likes: its own work, all-reduce and update.
double least_load(const SearchCase& what, int layer, int most_replicas) {
  double least = std::numeric_limits<double>::infinity();
  const Chain& chain = what.bound_chain;
  const double f = chain.stage_forward(layer, layer + 1);
  const double b = chain.stage_backward(layer, layer + 1);
  for (int q = 1; q <= most_replicas; ++q) {
    const double n = (what.micro_batches + q - 1) / q;
    const double all_reduce = flat_all_reduce(q, chain.sum(chain.weights, layer, layer + 1), what.best_link);
    const double load = n * f + std::max(n * b, (n - what.all_reduce_overlap) * b + all_reduce) +
                        chain.stage_update(layer, layer + 1);
    least = std::min(least, what.synchronous ? load : load * what.micro_batches / (n * q));
  }
  return least;
}

}  // namespace

GraphCandidateList find_graph_candidates(const SearchCase& what, const Lattice& lattice,
                                         const SearchSpace& space, int layers) {
  GraphCandidateList list;
  for (const SynchronousPoint& point : points(what, lattice, space))
    list.candidates.push_back({linear(lattice, point.partition, layers), point.theta + point.fill});
  const LoadKind kind = what.synchronous ? LoadKind::step_bound : LoadKind::period_bound;
  list.bound = search_lattice_bottleneck(lattice, space, make_load(what, space, kind)).value;
  return list;
}

double order_free_bound(const SearchCase& what, const SearchSpace& space) {
  const int layers = what.bound_chain.size();
  const double work = what.bound_chain.stage_compute(0, layers);
  double bound = std::max(what.synchronous ? work : 0, what.micro_batches * work / space.devices);
  for (int layer = 0; layer + 1 < layers; ++layer)  // the last position holds the loss, in this order only
    bound = std::max(bound, least_load(what, layer, space.replica_limit()));
  return bound;
}

}  // namespace pp::plan
