#include "tests/libplan/search/lattice.h"

#include <algorithm>

#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

bool parts_no_group(const PlanGraph& graph, const LayerSet& set) {
  bool parts = false;
  graph.for_each_group([&](const std::vector<int>& group) {
    const auto inside = std::ranges::count_if(group, [&](int layer) { return set.has(layer); });
    parts |= inside != 0 && inside != std::ssize(group);
  });
  return !parts;
}

/// One down-set as a boundary of stages.
class Boundary {
 public:
  Boundary(const PlanGraph& graph, const LayerSet& set, bool full, std::span<const LayerPrice> prices)
      : graph_(graph), set_(set), full_(full), prices_(prices) {}

  /// Adds what the set's layers come to and send to entry `k` of the chain.
  void add_to(Chain& chain, std::size_t k) const {
    for (int l = 0; l < graph_.size(); ++l) {
      if (!set_.has(l)) continue;
      chain.upto[k] += sums_of(graph_.layers[at(l)], prices_[at(l)]);
      if (is_read_outside(l)) add_crossing(chain, k, l);
    }
    chain.least_in[k] = least([&](int l) { return is_ready(l); }, [&](int l) { return inputs(l); });
    chain.least_out[k] = least([&](int l) { return is_last(l); }, [&](int l) { return output(l); });
  }

 private:
  void add_crossing(Chain& chain, std::size_t k, int l) const {
    const auto bytes = static_cast<double>(prices_[at(l)].output);
    chain.cut_activation[k] += bytes;
    chain.cut_activations[k] += 1;
    if (!graph_.layers[at(l)].has_gradient) return;
    chain.cut_gradient[k] += bytes;
    chain.cut_gradients[k] += 1;
  }

  bool is_read_outside(int l) const {
    const GraphLayer& layer = graph_.layers[at(l)];
    return (layer.feeds_loss && !full_) ||
           std::ranges::any_of(layer.consumers, [&](int reader) { return !set_.has(reader); });
  }
  /// A stage that begins here holds at least one of these ...
  bool is_ready(int l) const {
    return !set_.has(l) &&
           std::ranges::all_of(graph_.layers[at(l)].producers, [&](int source) { return set_.has(source); });
  }
  /// ... and one that ends here one of those.
  bool is_last(int l) const {
    return set_.has(l) &&
           std::ranges::none_of(graph_.layers[at(l)].consumers, [&](int reader) { return set_.has(reader); });
  }
  void add_output(Exchange& sum, int l) const {
    const auto bytes = static_cast<double>(prices_[at(l)].output);
    sum.activation += bytes;
    sum.activations += 1;
    if (!graph_.layers[at(l)].has_gradient) return;
    sum.gradient += bytes;
    sum.gradients += 1;
  }
  Exchange inputs(int l) const {
    Exchange sum;
    for (const int source : graph_.layers[at(l)].producers) add_output(sum, source);
    return sum;
  }
  Exchange output(int l) const {
    Exchange sum;
    if (is_read_outside(l)) add_output(sum, l);
    return sum;
  }

  Exchange least(const auto& counts, const auto& exchange) const {
    std::optional<Exchange> smallest;
    for (int l = 0; l < graph_.size(); ++l) {
      if (!counts(l)) continue;
      const Exchange other = exchange(l);
      smallest = smallest ? least_of(*smallest, other) : other;
    }
    return smallest.value_or(Exchange{});
  }

  const PlanGraph& graph_;
  const LayerSet& set_;
  bool full_;
  std::span<const LayerPrice> prices_;
};

}  // namespace

std::optional<Lattice> make_lattice(const PlanGraph& graph, const LatticeLimits& limits) {
  Lattice lattice{down_sets(graph, limits.sets), {}};
  std::erase_if(lattice.sets, [&](const LayerSet& set) { return !parts_no_group(graph, set); });
  if (lattice.sets.empty()) return std::nullopt;
  std::size_t pairs = 0;
  lattice.ends.resize(lattice.sets.size());
  for (int begin = 0; begin < lattice.size(); ++begin) {
    for (int end = begin + 1; end < lattice.size(); ++end) {
      if (lattice.sets[at(end)].contains(lattice.sets[at(begin)])) lattice.ends[at(begin)].push_back(end);
    }
    if ((pairs += lattice.ends[at(begin)].size()) > limits.pairs) return std::nullopt;
  }
  return lattice;
}

Chain make_lattice_chain(const PlanGraph& graph, const Lattice& lattice, std::span<const LayerPrice> prices,
                         const LayerPrice& loss, const OptimizerCost& optimizer) {
  Chain chain = empty_chain(lattice.size());
  chain.optimizer = optimizer;
  for (int width = 1; width < lattice.size(); width *= 2) chain.reach.emplace_back(at(lattice.size() - width));
  for (std::size_t k = 0; k < lattice.sets.size(); ++k) {
    const bool full = k + 1 == lattice.sets.size();
    Boundary(graph, lattice.sets[k], full, prices).add_to(chain, k);
  }
  chain.loss = sums_of_loss(loss);
  chain.upto.back() += chain.loss;
  return chain;
}

}  // namespace pp::plan
