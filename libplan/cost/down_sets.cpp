#include "libplan/cost/down_sets.h"

#include <algorithm>
#include <set>

#include "libprofile/core/index.h"

namespace pp::plan {

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

}  // namespace pp::plan
