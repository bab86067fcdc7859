// A graph without a linear order: the boundaries of its stages are its down-sets, and a stage leads from one to
// any that contains it. Every linear order is a path through them.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "libplan/cost/chain.h"
#include "libplan/peers/set_search.h"

namespace pp::plan {

struct Lattice {
  std::vector<LayerSet> sets;          ///< from nothing (0) to everything, ascending in size
  std::vector<std::vector<int>> ends;  ///< per set, the larger ones that contain it, ascending

  int size() const { return static_cast<int>(sets.size()); }
};

struct LatticeLimits {
  std::size_t sets = 50'000;
  std::size_t pairs = 20'000'000;  ///< of sets one of which contains the other
};

/// Down-sets that part no group of layers with shared weights. Nothing when they or their pairs exceed the
/// limits. O(sets^2 * layers / 64).
std::optional<Lattice> make_lattice(const PlanGraph& graph, const LatticeLimits& limits = {});

/// The graph's chain over its down-sets: what a boundary adds up to is that of its layers, and what crosses it
/// are the tensors that a layer outside reads. `prices` and `loss` as for make_chain(); the loss belongs to the
/// stage that ends with everything. Without `order`, workspace and the tensors of single stages, so memory is a
/// lower bound. O(sets * (layers + edges)).
Chain make_lattice_chain(const PlanGraph& graph, const Lattice& lattice, std::span<const LayerPrice> prices,
                         const LayerPrice& loss, const OptimizerCost& optimizer);

}  // namespace pp::plan
