#include "libprofile/core/model/model_traits.h"

#include "libprofile/core/ops/op_table.h"
#include "tests/support/doctest.h"

namespace draws_test {

using namespace pp;

TEST_SUITE("libprofile/core/draws") {
  TEST_CASE("a layer draws where its op does and one of its probabilities is above 0") {
    CHECK(draws_numbers(Layer{.name = "d", .op = "dropout", .inputs = {}, .attributes = {{"p", 0.1}}}));
    CHECK_FALSE(draws_numbers(Layer{.name = "d", .op = "dropout", .inputs = {}, .attributes = {{"p", 0.0}}}));
    CHECK_FALSE(draws_numbers(
        Layer{.name = "n", .op = "batch_norm2d", .inputs = {}, .attributes = {{"momentum", 0.1}}}));
  }

  TEST_CASE("so does a graph with such a node, and a loss") {
    const Layer drops{.name = "d", .op = "dropout", .inputs = {}, .attributes = {{"p", 0.1}}};
    const Layer graph{.name = "g", .op = std::string(kGraphOp), .inputs = {}, .attributes = {}};
    Layer drawing = graph;
    drawing.nodes = {drops};
    CHECK_FALSE(draws_numbers(graph));
    CHECK(draws_numbers(drawing));
    LossSpec loss{.op = std::string(kGraphOp), .inputs = {}, .attributes = {}};
    CHECK_FALSE(draws_numbers(loss));
    loss.nodes = {drops};
    CHECK(draws_numbers(loss));
  }

  TEST_CASE("the ops that draw, and no others, have probabilities, from 0 to below 1") {
    int found = 0;
    for (const OpRow& row : op_table()) {
      CAPTURE(row.name);
      int probabilities = 0;
      for (const AttributeSpec& attribute : row.attributes) {
        CHECK(attribute.probability == attribute.summary.starts_with("probability"));
        if (!attribute.probability) continue;
        ++probabilities;
        CHECK(std::holds_alternative<double>(attribute.type));
        CHECK(attribute.min == 0);
        CHECK(attribute.max < 1);
      }
      CHECK((probabilities > 0) == row.draws);
      found += row.draws ? 1 : 0;
    }
    CHECK(found > 4);
  }

  TEST_CASE("attention that one kernel would do but for its dropout is named, in layers and in graphs") {
    const auto model = [](const std::string& attention, bool in_graph) {
      const std::string layer = R"({ "name": "attend", "op": "grouped_query_attention", "inputs": ["x"],
        "attributes": { "num_heads": 2, )" +
                                attention + "} }";
      const std::string graph = R"({ "name": "block", "op": "graph", "inputs": ["x"], "outputs": ["attend"],
        "nodes": [)" + layer + "] }";
      return scores_kept(resolve(parse_model(R"({ "format": "pp.model", "version": 1, "name": "m",
        "inputs": [{ "name": "x", "shape": [4, 24] }], "layers": [)" +
                                             (in_graph ? graph : layer) + R"(], "outputs": [")" +
                                             (in_graph ? "block" : "attend") + "\"] }")));
    };
    for (const bool in_graph : {false, true}) {
      CAPTURE(in_graph);
      CHECK(model(R"("dropout": 0.1)", in_graph) ==
            "attention keeps its scores in 1 operation, because dropout = 0.1; with dropout = 0 one kernel "
            "attends "
            "without them, in less time and memory");
      CHECK(model(R"("dropout": 0)", in_graph).empty());
      CHECK(model(R"("dropout": 0.1, "soft_cap": 30)", in_graph).empty());  // which keeps them, too
    }
  }
}

}  // namespace draws_test
