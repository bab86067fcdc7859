// Generation with kept keys and values: token for token what recomputation makes, and what transformers'
// generate() makes with the same weights (tests/data/families, "greedy").
#include <ATen/ops/tensor.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "libprofile/core/file.h"
#include "libprofile/core/model/model_traits.h"
#include "libprofile/model/families/families.h"
#include "libprofile/model/families/hugging_face.h"
#include "librun/checkpoint/weights.h"
#include "librun/infer.h"
#include "tests/libprofile/model/family_values.h"
#include "tests/librun/infer/files.h"
#include "tests/support/places.h"
#include "tests/support/plans.h"
#include "tests/support/torch_test.h"

namespace cached_generation_test {

using namespace pp;
using test::NamedTensors;

namespace {

NamedTensors weights_of(const ModelGraph& graph) {
  const ResolvedModel model = resolve(graph);
  NamedTensors weights;
  for (int l = 0; l < model.layer_count(); ++l) {
    const ResolvedLayer& layer = model.layers[static_cast<std::size_t>(l)];
    for (std::size_t i = 0; layer.weights_layer == l && i < layer.parameters.size(); ++i) {
      const std::string name = parameter_name(model, l, i);
      weights.emplace_back(name, test::initial(name, layer.parameters[i].shape));
    }
    for (std::size_t i = 0; i < layer.buffers.size(); ++i) {
      const std::string name = buffer_name(model, l, i);
      weights.emplace_back(name, test::initial(name, layer.buffers[i].shape));
    }
  }
  return weights;
}

at::Tensor tensor_of(const Json& rows) {
  std::vector<std::int64_t> values;
  for (const Json& row : rows) {
    for (const Json& value : row) values.push_back(value.get<std::int64_t>());
  }
  return at::tensor(values, at::kLong).view({static_cast<std::int64_t>(rows.size()), -1});
}

/// One inference of a model with weights of its names.
struct Decoding : test::InferFiles {
  Decoding(ModelGraph model, const at::Tensor& prompts, run::GenerationOptions generation)
      : InferFiles({{"tokens", prompts}}, weights_of(model), std::move(generation)), graph(std::move(model)) {}
  at::Tensor tokens(const std::vector<int>& cuts, bool cache = true) {
    options.generation->cache = cache;
    return infer(make_plan({.model = graph, .cuts = cuts, .dtype = DType::float64})).front().second;
  }

  ModelGraph graph;
};

}  // namespace

TEST_SUITE("librun/infer/cached_generation") {
  TEST_CASE("greedy tokens are those of transformers, on one stage and on three") {
    for (const std::string& name : test::decoder_cases()) {
      CAPTURE(name);
      const Json document = parse_json(read_file(pp::test::test_data("families/" + name + ".json")));
      const ModelGraph graph =
          model::build_hugging_face(document["config"], document["arguments"].get<std::string>());
      const std::int64_t sequence = graph.inputs.front().type.shape.front();
      REQUIRE(runs_by_pieces(resolve(graph), sequence));
      const at::Tensor prompts = tensor_of(document["prompt"]), greedy = tensor_of(document["greedy"]);
      Decoding decoding(
          graph, prompts,
          {.new_tokens = static_cast<int>(greedy.size(1)), .prompt_length = static_cast<int>(prompts.size(1))});
      decoding.options.micro_batch = 2;
      const int layers = static_cast<int>(graph.layers.size());
      for (const std::vector<int>& cuts : {std::vector<int>{}, {layers / 3, 2 * layers / 3}}) {
        const at::Tensor found = decoding.tokens(cuts);
        CHECK(found.narrow(1, prompts.size(1), greedy.size(1)).equal(greedy));
      }
      CHECK(decoding.tokens({}, /*cache=*/false).narrow(1, prompts.size(1), greedy.size(1)).equal(greedy));
    }
  }

  TEST_CASE("prompts of several lengths and sequences that end keep their places") {
    const ModelGraph graph = model::build_family(
        "mistral:layers=2,width=16,heads=4,kv_heads=2,head_width=6,hidden=24,vocabulary=13,sequence=12,window="
        "4");
    // Token 0 fills up; the prompts have 3, 1, 2 and 4 tokens.
    const at::Tensor prompts =
        at::tensor({5, 3, 7, 0, 2, 0, 0, 0, 9, 4, 0, 0, 1, 8, 6, 11}, at::kLong).view({4, 4});
    Decoding decoding(graph, prompts, {.new_tokens = 7, .prompt_length = 4, .pad_token = 0});
    decoding.options.micro_batch = 2;
    const int layers = static_cast<int>(graph.layers.size());
    const at::Tensor again = decoding.tokens({}, /*cache=*/false);
    CHECK(decoding.tokens({}).equal(again));
    CHECK(decoding.tokens({layers / 2}).equal(again));
    // The first token that a sequence makes ends those that make it.
    decoding.options.generation->end_token = again[0][3].item<std::int64_t>();
    CHECK(decoding.tokens({layers / 4, layers / 2}).equal(decoding.tokens({}, /*cache=*/false)));
  }

  TEST_CASE("models that look ahead are not run by pieces") {
    const auto by_pieces = [](std::string_view family, std::int64_t length) {
      return runs_by_pieces(resolve(model::build_family(family)), length);
    };
    CHECK_FALSE(by_pieces("gpt2:layers=1,width=8,heads=2,vocabulary=13,sequence=6", 6));
    CHECK_FALSE(by_pieces("t5_small:layers=1,width=8,heads=2,hidden=8,vocabulary=13,source=6,target=6", 6));
    CHECK(by_pieces("smollm:layers=1,width=8,heads=2,kv_heads=1,head_width=4,hidden=8,vocabulary=13,sequence=6",
                    6));
  }
}

}  // namespace cached_generation_test
