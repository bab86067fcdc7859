// The down-sets of a graph as boundaries of stages: sets that hold every producer of their members, what a
// pipeline can have finished at a cut. Every linear order is a path through them, so what no path undercuts
// holds for any layer order.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "libplan/cost/chain.h"
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
  LayerSet& operator|=(const LayerSet& other) {
    for (std::size_t w = 0; w < words_.size(); ++w) words_[w] |= other.words_[w];
    return *this;
  }
  LayerSet& operator&=(const LayerSet& other) {
    for (std::size_t w = 0; w < words_.size(); ++w) words_[w] &= other.words_[w];
    return *this;
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

/// Ascending in size, from nothing (0) to everything; none parts a group of layers with shared weights, nor a
/// block that stays whole.
struct Lattice {
  std::vector<LayerSet> sets;
  /// Ascending: the sets that contain every smaller one and lie in every larger one. Every layer order passes
  /// through them; neighbours enclose the sets in between.
  std::vector<int> waists;

  int size() const { return static_cast<int>(sets.size()); }
};

/// Nothing where there are more than `most` down-sets. O(sets * layers * log sets).
std::optional<Lattice> make_lattice(const PlanGraph& graph, std::size_t most);

/// The graph's chain over its down-sets: what a boundary adds up to is that of its layers, and what crosses it
/// are the tensors that a layer outside reads. `prices` and `loss` as for make_chain(); the loss belongs to the
/// stage that ends with everything. Without `order`, workspace and the tensors of single stages, so memory is a
/// lower bound. O(sets * (layers + edges)).
Chain make_lattice_chain(const PlanGraph& graph, const Lattice& lattice, std::span<const LayerPrice> prices,
                         const LayerPrice& loss, const OptimizerCost& optimizer);

}  // namespace pp::plan
