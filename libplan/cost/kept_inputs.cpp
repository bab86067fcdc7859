#include "libplan/cost/kept_inputs.h"

#include <algorithm>

#include "libprofile/core/index.h"

namespace pp::plan {

std::vector<bool> may_be_kept(const PlanGraph& graph, std::span<const LayerPrice> prices) {
  std::vector<bool> by_producer(at(graph.size())), kept(at(graph.size()));
  for (int l = 0; l < graph.size(); ++l) {  // in topological order
    const GraphLayer& layer = graph.layers[at(l)];
    const LayerPrice& price = prices[at(l)];
    by_producer[at(l)] = !price.waiting || price.saved - price.saved_input >= price.output;
    if (price.saved == 0 && !by_producer[at(l)]) {
      by_producer[at(l)] = std::ranges::any_of(layer.producers, [&](int producer) {
        return by_producer[at(producer)] && prices[at(producer)].output == price.output;
      });
    }
    kept[at(l)] =
        by_producer[at(l)] || layer.feeds_loss || std::ranges::any_of(layer.consumers, [&](int reader) {
          return !prices[at(reader)].waiting || prices[at(reader)].saved_input >= price.output;
        });
  }
  return kept;
}

}  // namespace pp::plan
