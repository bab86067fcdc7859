// The exact search for peers whose stages are priced as sets of layers, not as intervals of a chain with cut
// costs: over all down-sets of a graph (sets that hold every producer of their members, what a pipeline can
// have finished at a cut), or over the prefixes of its linear orders where there are too many.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "libplan/cost/lattice.h"
#include "libplan/peers/input.h"

namespace pp::plan {

/// What such a search goes through.
struct SearchedSets {
  std::vector<std::vector<LayerSet>> chains;  ///< each from the empty to the full set
  bool every_order = false;                   ///< one of all down-sets: no layer order does better
  std::string words;
};

/// The down-sets while there are at most 50,000 and their pairs times the layers at most 2e9; else each linear
/// order.
SearchedSets searched_sets(const PeerInput& input);

/// The stage that is being put together. Adding a layer costs its edges, so growing a stage is cheap.
class StagePrice {
 public:
  virtual ~StagePrice() = default;
  virtual void clear() = 0;
  virtual void add(int layer) = 0;
  /// Of the layers added since clear(); infinity: does not fit.
  virtual double load() const = 0;
};

struct SetPlan {
  double value = std::numeric_limits<double>::infinity();  ///< the largest load
  std::vector<std::vector<int>> stages;                    ///< ascending layers; empty: nothing fits
};

/// The least largest load on at most `devices` devices, one a stage; among equals the fewest devices. O(pairs *
/// (layers + devices)).
SetPlan search_sets(const SearchedSets& searched, int layers, StagePrice& price, int devices);

}  // namespace pp::plan
