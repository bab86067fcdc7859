#include "libplan/cost/graph.h"

#include <numeric>

#include "libplan/cost/chain.h"
#include "libplan/cost/stage_memory.h"
#include "libprofile/core/index.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/cost/kept_inputs");

namespace pp::plan {
namespace {

/// Layers one behind the other; a layer that saves both its input and its result: saved = input + output.
PlanGraph chain_graph(int layers) {
  PlanGraph graph;
  graph.layers.resize(at(layers));
  for (int l = 1; l < layers; ++l) {
    graph.layers[at(l)].producers = {l - 1};
    graph.layers[at(l - 1)].consumers = {l};
  }
  graph.layers.back().feeds_loss = true;
  return graph;
}

LayerPrice measured(std::int64_t output, std::int64_t saved, std::int64_t saved_input) {
  LayerPrice price;
  price.output = output;
  price.saved = saved;
  price.saved_input = saved_input;
  price.waiting = 0;
  return price;
}

using Kept = std::vector<bool>;

}  // namespace

TEST_CASE("a tensor is kept when its producer or a reader counts it, otherwise not") {
  // conv (keeps its input), relu (its result), pool (indices; its input is counted at relu), conv (its input),
  // norm (its input), relu (its result).
  const std::vector<LayerPrice> prices{measured(8, 5, 5), measured(8, 8, 0), measured(2, 4, 0),
                                       measured(6, 2, 2), measured(6, 7, 6), measured(6, 6, 0)};
  CHECK(may_be_kept(chain_graph(6), prices) == Kept{false, true, true, true, false, true});
}

TEST_CASE("a layer that saves nothing may hand on storage that was counted in front of it") {
  // relu, flatten, linear: the linear layer keeps relu's result, and the profile counts it at relu.
  const std::vector<LayerPrice> prices{measured(8, 8, 0), measured(8, 0, 0), measured(3, 0, 0)};
  CHECK(may_be_kept(chain_graph(3), prices) == Kept{true, true, true});
  // Another size is another tensor: relu, pad, linear, where the linear layer would count what it keeps.
  const std::vector<LayerPrice> padded{measured(8, 8, 0), measured(9, 0, 0), measured(3, 2, 0)};
  CHECK(may_be_kept(chain_graph(3), padded) == Kept{true, false, true});
}

TEST_CASE("without a measured profile everything is taken to be kept") {
  std::vector<LayerPrice> prices{measured(8, 0, 0), measured(8, 0, 0), measured(8, 0, 0)};
  prices[1].waiting = std::nullopt;
  CHECK(may_be_kept(chain_graph(3), prices) == Kept{true, true, true});
}

TEST_CASE("a stage holds what passes once, what it keeps for each micro-batch in flight") {
  // Boundary 1 carries 8 bytes that nobody keeps, boundary 2 8 bytes that relu keeps.
  const std::vector<LayerPrice> prices{measured(8, 5, 5), measured(8, 8, 0), measured(2, 4, 0)};
  std::vector<int> order(3);
  std::iota(order.begin(), order.end(), 0);
  const Chain chain = make_chain(chain_graph(3), order, prices, measured(0, 0, 0), {});
  CHECK(chain.in_bytes(1, 3) == 8);
  CHECK(chain.kept_bytes(1, 3) == 0);
  CHECK(chain.kept_bytes(2, 3) == 8);
  const StageMemory memory(chain, {.all = true, .micro_batches = 4},
                           {.in = HandOver::reference, .out = HandOver::reference});
  const std::vector<StageBytes> stages = memory.stages({{0, 1, 1}, {1, 3, 1}});
  CHECK(stages[1].input == 0);
  CHECK(stages[1].workspace == 8);  // received and not sent on
  CHECK(stages[1].total() == 4 * (8 + 4) + 8);
  CHECK(memory.stages({{0, 2, 1}, {2, 3, 1}})[1].total() == 4 * (4 + 8));
  // What runs again starts from all that it received.
  const StageMemory again(chain, {.all = true, .micro_batches = 4, .recompute = RecomputeMode::always},
                          {.in = HandOver::reference, .out = HandOver::reference});
  CHECK(again.stages({{0, 1, 1}, {1, 3, 1}})[1].input == 8);
}

}  // namespace pp::plan

TEST_SUITE_END();
