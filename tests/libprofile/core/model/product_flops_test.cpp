#include "libprofile/core/model/product_flops.h"

#include <nlohmann/json.hpp>
#include <numeric>

#include "libprofile/core/file.h"
#include "libprofile/core/json_reader.h"
#include "libprofile/model/families/families.h"
#include "libprofile/model/families/hugging_face.h"
#include "tests/support/doctest.h"
#include "tests/support/places.h"

TEST_SUITE_BEGIN("libprofile/core/model/product_flops");

namespace pp::product_flops_test {
namespace {

Layer layer(const std::string& name, const std::string& op, const std::string& input,
            Attributes attributes = {}) {
  return {name, op, {input}, std::move(attributes)};
}

/// Linear layers without bias behind an embedding of 16 words of width 4; 8 positions.
ModelGraph language() {
  ModelGraph graph;
  graph.name = "language";
  graph.inputs = {{"tokens", {{8}, DType::int64}}};
  graph.targets = {{"next", {{8}, DType::int64}}};
  const auto width = [](std::int64_t n) { return Attributes{{"out_features", n}, {"bias", false}}; };
  graph.layers = {layer("embed", "embedding", "tokens",
                        {{"num_embeddings", std::int64_t{16}}, {"embedding_dim", std::int64_t{4}}}),
                  layer("fc", "linear", "embed", width(4)), layer("act", "gelu", "fc"),
                  layer("head", "linear", "act", width(16))};
  graph.outputs = {"head"};
  graph.loss = LossSpec{"cross_entropy", {"head", "next"}, {}};
  return graph;
}

PassFlops sum_of(const ModelGraph& graph) {
  PassFlops sum;
  for (const PassFlops& one : product_flops(resolve(graph))) {
    sum.forward += one.forward;
    sum.backward += one.backward;
  }
  return sum;
}

}  // namespace

TEST_CASE("a product counts 2 per multiply-add, its two gradients as much each; nothing else counts") {
  // fc: 8 positions x 4 x 4 x 2; head: 8 x 4 x 16 x 2.
  const auto flops = product_flops(resolve(language()));
  CHECK(flops == std::vector<PassFlops>{{0, 0}, {256, 512}, {0, 0}, {1024, 2048}});
}

TEST_CASE("gradients that nobody needs do not count") {
  ModelGraph graph = language();
  graph.layers[1].frozen.all = true;  // its input's gradient goes on to the embedding
  CHECK(product_flops(resolve(graph))[1] == PassFlops{256, 256});
  graph.layers[0].frozen.all = true;  // now it does not
  CHECK(product_flops(resolve(graph))[1] == PassFlops{256, 0});
  CHECK(product_flops(resolve(graph))[3] == PassFlops{1024, 1024});
}

TEST_CASE("of a GPT they are 6 N D and attention's scores") {
  // N without embeddings: 12 d^2 a layer and the head's d V. Scores and their use: 4 s^2 d a layer forward,
  // three times that in all (Narayanan et al., SC'21, appendix). Beside them biases and softmax: 5 s^2 heads a
  // layer are 5 * 4 / (4 * 64) = 8 % of the scores at heads of 16, so heads are wide here.
  const double layers = 3, width = 256, sequence = 64, vocabulary = 1000;
  const ModelGraph graph =
      model::build_family("gpt2:layers=3,width=256,heads=2,sequence=64,vocabulary=1000,tied=0,dropout=0");
  const PassFlops flops = sum_of(graph);
  const double weights = layers * 12 * width * width + width * vocabulary;
  const double expected = 6 * weights * sequence + 12 * layers * sequence * sequence * width;
  CHECK(flops.forward + flops.backward == doctest::Approx(expected).epsilon(0.005));
  CHECK(flops.backward == doctest::Approx(2 * flops.forward));
}

TEST_CASE("pairs that a causal mask hides are half of attention's products, forward and backward") {
  // Of 2 heads of 128, 64 * 64 pairs: 2 * 128 for a score, as many for its use, 5 for the softmax, three times
  // in all with the two gradients; half of that is hidden. Nothing is without a mask.
  const std::string words = "gpt2:layers=1,width=256,heads=2,sequence=64,vocabulary=1000,tied=0,dropout=0";
  double masked = 0;
  for (const PassFlops& one : product_flops(resolve(model::build_family(words)))) masked += one.masked;
  CHECK(masked == doctest::Approx(0.5 * 3 * 2 * 64 * 64 * (2 * 128 + 2 * 128 + 5)));
  for (const PassFlops& one : product_flops(resolve(model::build_family("bert_base")))) CHECK(one.masked == 0);
}

TEST_CASE("mixtures count what each token needs, as NVIDIA counts DeepSeek-V3") {
  // Megatron Bridge 25.11: 961 TFLOP/s and 3,848 tokens/s without multi-token prediction, 557 and 2,139 with
  // it.
  const Json config = parse_json(read_file(test::test_data("anchors/configs/deepseek_v3.json")));
  const auto per_token = [&](const char* arguments) {
    double flops = 0;
    for (const PassFlops& one : product_flops(resolve(model::build_hugging_face(config, arguments))))
      flops += one.forward + one.backward - one.masked;
    return flops / 4096;
  };
  CHECK(per_token("") == doctest::Approx(961e12 / 3848).epsilon(0.01));
  CHECK(per_token("mtp=1") == doctest::Approx(557e12 / 2139).epsilon(0.01));
}

TEST_CASE("tokens are what an embedding looks up; images and numbers have none") {
  CHECK(tokens_per_sample(resolve(language())) == 8);
  CHECK(tokens_per_sample(resolve(model::build_family("bert_base"))) ==
        element_count(model::build_family("bert_base").inputs.front().type.shape));
  CHECK(tokens_per_sample(resolve(model::build_family("lenet5"))) == 0);
}

}  // namespace pp::product_flops_test

TEST_SUITE_END();
