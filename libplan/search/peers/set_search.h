// The exact search for peers whose stages are priced as sets of layers, not as intervals of a chain with cut
// costs: over all down-sets of a graph, or over the prefixes of its linear orders where there are too many.
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "libplan/search/peers/input.h"

namespace pp::plan {

/// The stage that is being put together. Adding a layer costs its edges, so growing a stage is cheap.
class StagePrice {
 public:
  virtual ~StagePrice() = default;
  virtual void clear() = 0;
  virtual void add(int layer) = 0;
  /// Of the layers added since clear(), on `replicas` devices with `later` devices behind; infinity: does not
  /// fit.
  virtual double load(int replicas, int later) const = 0;
};

struct SetStage {
  std::vector<int> layers;  ///< ascending
  int replicas = 1;
  bool operator==(const SetStage&) const = default;
};

struct SetPlan {
  double value = std::numeric_limits<double>::infinity();  ///< the largest load
  std::vector<SetStage> stages;                            ///< empty: nothing fits
  bool every_order = false;  ///< searched over all down-sets, so no layer order does better
  std::string search;        ///< in words
};

struct SetLimits {
  int devices = 1;
  int max_replicas = 1;  ///< of one stage
};

/// The least largest load on at most so many devices; among equals the fewest devices. Over the down-sets while
/// there are at most 50,000 and their pairs times the layers at most 2e9; else over each linear order. O(pairs
/// * (layers + max_replicas * devices)).
SetPlan search_sets(const PeerInput& input, StagePrice& price, const SetLimits& limits);

}  // namespace pp::plan
