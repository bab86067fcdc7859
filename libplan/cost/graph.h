// The model as the planner sees it: who produces what for whom, which bytes belong to a layer whatever the
// micro-batch size, which layers must stay together, and which received tensors a stage keeps after its
// forward.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "libplan/cost/layer_curve.h"
#include "libprofile/core/profile.h"

namespace pp::plan {

struct GraphLayer {
  std::string name;
  std::vector<int> producers;  ///< layers this one reads, ascending, each once
  std::vector<int> consumers;  ///< layers that read this one, ascending, each once
  bool feeds_loss = false;     ///< the loss, a virtual last layer, reads it
  bool has_gradient = true;    ///< a gradient of its output comes back from a layer that reads it, or the loss
  std::int64_t parameter_bytes = 0;
  std::int64_t frozen_bytes = 0;  ///< the part of it that is not trained
  std::int64_t trained_bytes() const { return parameter_bytes - frozen_bytes; }
  std::int64_t borrowed_bytes = 0;  ///< trained parameters of another layer, which this one uses too
  /// Each use of a parameter has a gradient of its own until the update.
  std::int64_t gradient_bytes() const { return trained_bytes() + borrowed_bytes; }
  std::int64_t buffer_bytes = 0;
  std::int64_t expert_bytes = 0;  ///< the trained part that fewer devices have (LayerProfile::experts)
};

struct PlanGraph {
  std::vector<GraphLayer> layers;  ///< in file order, which is topological
  std::vector<std::vector<int>>
      shared;                          ///< groups of layers that share parameters, first the one they belong to
  std::vector<std::vector<int>> tied;  ///< those of them that stand in one stage
  std::vector<std::vector<int>> blocks;  ///< layers that the request keeps in one stage, too
  /// Blocks in file order, where only the first ones of a stage may run again; empty: any layers may.
  std::vector<std::vector<int>> recompute_blocks;
  /// No stage boundary runs through a group of `tied` or `blocks`. Calls visit(group).
  template <class Visit>
  void for_each_group(Visit visit) const {
    for (const auto* groups : {&tied, &blocks}) {
      for (const std::vector<int>& group : *groups) visit(group);
    }
  }
  bool has_groups() const { return !tied.empty() || !blocks.empty(); }
  int size() const { return static_cast<int>(layers.size()); }
};

/// Resolves the profile's model. Opaque layers count as trainable. Throws pp::Error (data) as resolve() does,
/// and when the profile's layers are not the model's.
PlanGraph make_graph(const Profile& profile);

/// Per layer, whether a reader of its output may keep it for its backward. False only where a measured profile
/// (recognised by `waiting`) shows it: what is saved counts at the first layer that keeps it, so when neither
/// the layer itself nor a reader counts as much as the output, no layer keeps it. A layer that saves nothing
/// may hand on its input's storage, and that may be counted further in front. The loss is taken to keep what it
/// reads. O(layers + edges).
std::vector<bool> may_be_kept(const PlanGraph& graph, std::span<const LayerPrice> prices);

}  // namespace pp::plan
