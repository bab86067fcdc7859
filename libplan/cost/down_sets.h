// Sets of layers that hold every producer of their members: what a pipeline can have finished at a cut. A
// branching graph is split exactly by searching over all of them when they are few.
#pragma once

#include <cstdint>
#include <vector>

#include "libplan/cost/graph.h"
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

}  // namespace pp::plan
