// The exact search for peers whose stages are priced as sets of layers, not as intervals of a chain with cut
// costs: over all down-sets of a graph (sets that hold every producer of their members, what a pipeline can
// have finished at a cut), or over the prefixes of its linear orders where there are too many.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "libplan/cost/graph.h"
#include "libplan/peers/input.h"
#include "libprofile/core/index.h"

namespace pp::plan {

/// One bit per layer.
class LayerSet {
 public:
  explicit LayerSet(int layers) : words_((at(layers) + 63) / 64) {}
  bool has(int layer) const { return (words_[word(layer)] >> (layer % 64) & 1) != 0; }
  void add(int layer) { words_[word(layer)] |= std::uint64_t{1} << (layer % 64); }
  bool contains(const LayerSet& other) const {
    for (std::size_t w = 0; w < words_.size(); ++w) {
      if ((other.words_[w] & ~words_[w]) != 0) return false;
    }
    return true;
  }
  auto operator<=>(const LayerSet&) const = default;

 private:
  static std::size_t word(int layer) { return at(layer) / 64; }
  std::vector<std::uint64_t> words_;
};

/// The layers of `end` that `begin` lacks, in file order.
std::vector<int> layers_between(const LayerSet& begin, const LayerSet& end, int layers);

/// All of them, from the empty to the full one, ascending in size and then in bits; nothing if there are more
/// than `most`. O(result * layers * log result).
std::vector<LayerSet> down_sets(const PlanGraph& graph, std::size_t most);

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
