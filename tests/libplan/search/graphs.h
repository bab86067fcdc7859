// Random branching models, and every way to cut one into stages with replicas.
#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "libplan/cost/graph.h"
#include "libprofile/core/index.h"
#include "tests/libplan/search/instances.h"
#include "tests/libplan/search/profiles.h"

namespace pp::plan::test {

/// Layers of 1-8 + 2-16 ms, up to 3 MB of weights and 4 MB of output; a third of all forward edges.
inline Profile random_graph(Random& random, int layers) {
  ProfileSpec spec;
  for (int l = 0; l < layers; ++l) {
    spec.layers.push_back({random.integer(1, 8) * 1.0, random.integer(1, 8) * 2.0,
                           random.integer(0, 3) * 1'000'000, random.integer(0, 4) * 1'000'000, 0, 0, 0});
    for (int from = 0; from < l; ++from) {
      if (random.integer(0, 2) == 0) spec.edges.emplace_back(from, l);
    }
  }
  if (spec.edges.empty()) spec.edges.emplace_back(0, layers - 1);
  return make_profile(spec);
}

using Stages = std::vector<std::vector<int>>;

/// Every way to put the graph's layers into `stages` stages whose edges lead forward.
inline void for_each_staging(const PlanGraph& graph, int stages,
                             const std::function<void(const Stages&)>& visit) {
  std::vector<int> stage_of(at(graph.size()), 0);
  const std::function<void(int)> place = [&](int layer) {
    if (layer == graph.size()) {
      Stages sets(at(stages));
      for (int l = 0; l < layer; ++l) sets[at(stage_of[at(l)])].push_back(l);
      if (std::ranges::none_of(sets, [](const auto& set) { return set.empty(); })) visit(sets);
      return;
    }
    int first = 0;
    for (const int source : graph.layers[at(layer)].producers) first = std::max(first, stage_of[at(source)]);
    for (int stage = first; stage < stages; ++stage) {
      stage_of[at(layer)] = stage;
      place(layer + 1);
    }
  };
  place(0);
}

/// Every number of replicas, at most `most` each, that `stages` stages can have on `devices` devices.
inline void for_each_replicas(int stages, int devices, int most,
                              const std::function<void(const std::vector<int>&)>& visit) {
  std::vector<int> replicas;
  const std::function<void(int)> extend = [&](int left) {
    const int behind = stages - static_cast<int>(replicas.size()) - 1;
    if (behind < 0) return visit(replicas);
    for (int q = 1; q <= std::min(left - behind, most); ++q) {
      replicas.push_back(q);
      extend(left - q);
      replicas.pop_back();
    }
  };
  extend(devices);
}

}  // namespace pp::plan::test
