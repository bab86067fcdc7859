#include "libplan/cost/lattice.h"

#include <algorithm>
#include <set>

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

std::vector<int> layers_between(const LayerSet& begin, const LayerSet& end, int layers) {
  std::vector<int> result;
  for (int layer = 0; layer < layers; ++layer) {
    if (end.has(layer) && !begin.has(layer)) result.push_back(layer);
  }
  return result;
}

std::vector<LayerSet> down_sets(const PlanGraph& graph, std::size_t most) {
  const auto ready = [&](const LayerSet& done, int layer) {
    const std::vector<int>& producers = graph.layers[at(layer)].producers;
    return !done.has(layer) &&
           std::all_of(producers.begin(), producers.end(), [&](int producer) { return done.has(producer); });
  };
  std::vector<LayerSet> all{LayerSet(graph.size())};
  std::set<LayerSet> same_size(all.begin(), all.end());
  for (int size = 0; size < graph.size(); ++size) {
    std::set<LayerSet> larger;
    for (const LayerSet& done : same_size) {
      for (int layer = 0; layer < graph.size(); ++layer) {
        if (!ready(done, layer)) continue;
        LayerSet grown = done;
        grown.add(layer);
        larger.insert(std::move(grown));
      }
      if (all.size() + larger.size() > most) return {};
    }
    all.insert(all.end(), larger.begin(), larger.end());
    same_size = std::move(larger);
  }
  return all;
}

std::optional<Lattice> make_lattice(const PlanGraph& graph, std::size_t most) {
  Lattice lattice{down_sets(graph, most), {}};
  std::erase_if(lattice.sets, [&](const LayerSet& set) { return !parts_no_group(graph, set); });
  if (lattice.sets.empty()) return std::nullopt;
  std::vector<char> inside_later(lattice.sets.size(), 1);
  LayerSet common = lattice.sets.back();
  for (int k = lattice.size() - 1; k >= 0; --k) {
    inside_later[at(k)] = common.contains(lattice.sets[at(k)]);
    common &= lattice.sets[at(k)];
  }
  LayerSet met = lattice.sets.front();
  for (int k = 0; k < lattice.size(); ++k) {
    if (inside_later[at(k)] && lattice.sets[at(k)].contains(met)) lattice.waists.push_back(k);
    met |= lattice.sets[at(k)];
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
