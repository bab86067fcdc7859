// Linear orders of a model graph. Pipelines are contiguous in one order, so the order decides which stages are
// possible and what crosses them; six cheap ones are tried.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "libplan/cost/graph.h"

namespace pp::plan {

struct LinearOrder {
  std::string_view name;  ///< `dfs`, `bfs`, `minlive`, `rdfs`, `rbfs`, `rbig`; `file` for the order of the file
  std::vector<int> layers;  ///< layer at each position
};

/// The distinct ones of the six, first name kept. `output_bytes` per layer guides minlive and rbig. Ties go to
/// the layer that stands first in the file. A chain has one order. O(layers^2 + edges).
std::vector<LinearOrder> linear_orders(const PlanGraph& graph, std::span<const std::int64_t> output_bytes);

/// `most` more orders at random, distinct, always the same ones; all of them where a graph has only a few
/// dozen.
std::vector<std::vector<int>> drawn_orders(const PlanGraph& graph, std::size_t most);

LinearOrder file_order(const PlanGraph& graph);

}  // namespace pp::plan
