// Small random problems for the peers' models, and what their tests share.
#pragma once

#include <functional>
#include <optional>
#include <variant>

#include "libplan/cost/graph.h"
#include "libplan/cost/stage_cost.h"
#include "libplan/peers/peer.h"
#include "libprofile/core/index.h"
#include "tests/libplan/search/instances.h"
#include "tests/libplan/search/profiles.h"

namespace pp::plan::test {

/// Times of 1 to 9 ms, weights and outputs of 0 to 9 MB, saved bytes of 1 to 9. `branches`: any edges from a
/// layer to a later one, at least one into each layer but the first; else the chain.
inline Profile random_profile(Random& random, int layers, bool branches) {
  ProfileSpec spec;
  for (int i = 0; i < layers; ++i) {
    LayerRow row;
    row.forward_ms = random.integer(0, 3);
    row.backward_ms = random.integer(1, 6);
    row.parameters = random.integer(0, 9) * 1'000'000;
    row.output = random.integer(0, 9) * 1'000'000;
    row.saved = random.integer(1, 9);
    spec.layers.push_back(row);
    for (int producer = 0; branches && producer < i; ++producer) {
      if (producer == i - 1 ? random.integer(0, 3) > 0 : random.integer(0, 3) == 0)
        spec.edges.emplace_back(producer, i);
    }
    const bool read = !spec.edges.empty() && spec.edges.back().second == i;
    if (branches && i > 0 && !read) spec.edges.emplace_back(random.integer(0, i - 1), i);
  }
  return make_profile(spec);
}

/// The plan, or nothing when none fits. Units are not looked at.
inline std::optional<PeerPlan> plan_of(const Profile& profile, const PeerOptions& options) {
  const auto result = plan_as_peer(profile, options, true);
  if (const auto* plan = std::get_if<PeerPlan>(&result)) return *plan;
  return std::nullopt;
}

/// Every way to give each layer a stage 0..stages-1 such that no edge runs backwards; empty stages included.
inline void each_staging(const Profile& profile, int stages,
                         const std::function<void(const std::vector<int>&)>& visit) {
  const PlanGraph graph = make_graph(profile);
  std::vector<int> stage(at(graph.size()), 0);
  const std::function<void(std::size_t)> place = [&](std::size_t layer) {
    if (layer == stage.size()) return visit(stage);
    int first = 0;
    for (const int producer : graph.layers[layer].producers) first = std::max(first, stage[at(producer)]);
    for (stage[layer] = first; stage[layer] < stages; ++stage[layer]) place(layer + 1);
  };
  place(0);
}

/// Every split of [begin, end) into stages with replicas that use exactly `devices`.
inline void each_split(int begin, int end, int devices, Partition& stages,
                       const std::function<void(const Partition&)>& visit) {
  if (begin == end) {
    if (devices == 0) visit(stages);
    return;
  }
  for (int next = begin + 1; next <= end; ++next) {
    for (int replicas = 1; replicas <= devices; ++replicas) {
      stages.push_back({begin, next, replicas});
      each_split(next, end, devices - replicas, stages, visit);
      stages.pop_back();
    }
  }
}

}  // namespace pp::plan::test
