// Which labels a loss counts, read from the model alone.
#include "libprofile/core/model/counted_labels.h"

#include <nlohmann/json.hpp>
#include <string>

#include "libprofile/core/error.h"
#include "libprofile/core/model/model_traits.h"
#include "tests/librun/imported_models.h"
#include "tests/support/doctest.h"

namespace counted_labels_test {

using namespace pp;

namespace {

using Kind = TensorSource::Kind;

/// The imported model whose loss is nll_loss_nd of three classes, changed.
template <class Change>
ResolvedModel changed(Change&& change) {
  Json json = to_json(pp::test::imported_residual());
  change(json["loss"]);
  return resolve(model_from_json(json));
}

void add_node(Json& loss, const std::string& text) {
  loss["nodes"].push_back(parse_json(text));
  loss["outputs"] = {loss["nodes"].back()["name"]};
}

constexpr auto kHalf = R"({ "name": "half", "op": "aten", "inputs": ["nll"],
  "call": { "target": "aten::div.Scalar", "arguments": { "self": { "input": 0 }, "other": 2 },
            "outputs": [{ "shape": [], "rows": 0 }] } })";
constexpr auto kSquare = R"({ "name": "square", "op": "aten", "inputs": ["nll"],
  "call": { "target": "aten::pow.Tensor_Scalar", "arguments": { "self": { "input": 0 }, "exponent": 2 },
            "outputs": [{ "shape": [], "rows": 0 }] } })";

}  // namespace

TEST_SUITE("libprofile/core/model/counted_labels") {
  TEST_CASE(
      "cross_entropy says its ignored label where it is another than -100: old documents keep their hash") {
    ModelGraph graph = pp::test::imported_attention();
    const std::string hash = model_hash(graph);
    CHECK_FALSE(to_json(graph)["loss"].contains("attributes"));
    graph.loss->attributes["ignore_index"] = std::int64_t{-100};
    CHECK(model_hash(graph) == hash);
    graph.loss->attributes["ignore_index"] = std::int64_t{0};
    CHECK(model_hash(graph) != hash);
    CHECK(to_json(graph)["loss"]["attributes"]["ignore_index"] == 0);
    const ResolvedModel model = resolve(graph);
    const auto counted = counted_labels(model);
    REQUIRE(counted.has_value());
    CHECK(counted->means.front().ignored == 0);
    CHECK(counted->means.front().per_sample == 1);
    CHECK(counted->nodes.empty());
    CHECK((counted->made.sources == std::vector<TensorSource>{{Kind::target, 0, 0}}));
    CHECK(index_range(model, {Kind::target, 0, 0}).ignored == 0);
  }

  TEST_CASE("without a loss nothing counts") {
    ModelGraph graph = pp::test::imported_attention();
    graph.loss.reset();
    CHECK_FALSE(counted_labels(resolve(graph)).has_value());
  }

  TEST_CASE("LibTorch's calls in a graph: ignored label, class weights, scaled by constants") {
    const ResolvedModel model = changed([](Json& loss) {
      loss["nodes"][1]["call"]["arguments"]["ignore_index"] = 1;
      loss["nodes"][1]["call"]["arguments"]["weight"] = {{"constant", "w"}};
      loss["nodes"][1]["call"]["constants"] =
          parse_json(R"([{ "name": "w", "shape": [3], "values": [1.0, 5.0, 20.0] }])");
      add_node(loss, kHalf);
    });
    const auto counted = counted_labels(model);
    REQUIRE(counted.has_value());
    CHECK(counted->means.front().ignored == 1);
    CHECK(counted->means.front().class_weights == std::vector<double>{1, 5, 20});
    CHECK((counted->made.sources == std::vector<TensorSource>{{Kind::target, 0, 0}}));
    CHECK((counted->made.graph_outputs == std::vector<TensorSource>{{Kind::input, 0, 0}}));
  }

  TEST_CASE("a sum of multiples of means has a weight for each mean, and none where one is squared") {
    const auto with_sum = [](const std::string& of) {
      return changed([&](Json& loss) {
        add_node(loss, of == "half" ? kHalf : kSquare);
        Json second = loss["nodes"][1];
        second["name"] = "second";
        second["call"]["arguments"]["ignore_index"] = -1;
        add_node(loss, second.dump());
        add_node(loss, R"({ "name": "sum", "op": "aten", "inputs": ["second", ")" + of + R"("],
          "call": { "target": "aten::add.Tensor",
                    "arguments": { "self": { "input": 0 }, "other": { "input": 1 } },
                    "outputs": [{ "shape": [], "rows": 0 }] } })");
      });
    };
    const auto counted = counted_labels(with_sum("half"));
    REQUIRE(counted.has_value());
    REQUIRE(counted->means.size() == 2);
    CHECK((std::pair{counted->means[0].node, counted->means[0].ignored} == std::pair{3, std::int64_t{-1}}));
    CHECK((std::pair{counted->means[1].node, counted->means[1].ignored} == std::pair{1, std::int64_t{-100}}));
    CHECK(counted->made.graph_outputs.size() == 2);
    CHECK_FALSE(counted_labels(with_sum("square")).has_value());
  }

  TEST_CASE("what is more than the mean has no weight, and may ignore none of its classes") {
    CHECK_FALSE(counted_labels(changed([](Json& loss) { add_node(loss, kSquare); })).has_value());
    const ResolvedModel ignoring = changed([](Json& loss) {
      loss["nodes"][1]["call"]["arguments"]["ignore_index"] = 2;
      add_node(loss, kSquare);
    });
    CHECK_THROWS_WITH_AS(
        counted_labels(ignoring),
        "the loss of model \"imported_residual\": node \"nll\" ignores label 2, and the loss is more than its "
        "mean over the other labels, so that micro-batches do not add up to it; return the cross entropy "
        "alone, "
        "or ignore a label outside the classes such as -100",
        Error);
    const ResolvedModel sum =
        changed([](Json& loss) { loss["nodes"][1]["call"]["arguments"]["reduction"] = 2; });
    CHECK_FALSE(counted_labels(sum).has_value());
  }
}

}  // namespace counted_labels_test
