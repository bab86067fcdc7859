// Profiles by arithmetic: FLOPs, bytes moved and kept, and that nothing is allocated for huge models.
#include "libprofile/estimate/estimate.h"

#include <nlohmann/json.hpp>

#include "libprofile/core/error.h"
#include "libprofile/core/ops/op_table.h"
#include "libprofile/estimate/layer_work.h"
#include "libprofile/model/families/catalogue.h"
#include "libprofile/model/families/families.h"
#include "tests/support/doctest.h"

using namespace pp;
using namespace pp::profile;

namespace {

ModelGraph chain(std::vector<Layer> layers, TensorType input) {
  ModelGraph graph;
  graph.name = "chain";
  graph.inputs = {{"x", std::move(input)}};
  std::string last = "x";
  for (Layer& layer : layers) {
    layer.inputs = {last};
    last = layer.name;
  }
  graph.layers = std::move(layers);
  graph.outputs = {last};
  return graph;
}

Layer linear(const std::string& name, std::int64_t out) {
  return {.name = name, .op = "linear", .inputs = {}, .attributes = {{"out_features", out}}};
}
Layer layer(const std::string& name, const std::string& op, Attributes attributes = {}) {
  return {.name = name, .op = op, .inputs = {}, .attributes = std::move(attributes)};
}

std::vector<LayerWork> works(const ModelGraph& graph, std::int64_t size, DType dtype = DType::float32) {
  return layer_work(resolve(graph), dtype, size);
}

/// 1e12 FLOP/s and bytes/s, without anything that makes them less.
DeviceSpec plain_device() {
  DeviceSpec device;
  device.name = "plain";
  device.memory = Bytes(std::int64_t{1} << 33);
  device.memory_bandwidth = device.cache_bandwidth = BytesPerSecond(1e12);
  for (const DType dtype : {DType::float32, DType::bfloat16}) device.types.push_back({dtype, 1e12, 1e12, 1, 0});
  return device;
}

}  // namespace

TEST_SUITE("libprofile/estimate/layers") {
  TEST_CASE("a linear layer moves inputs, outputs and weights, and has both gradients") {
    // Two samples, 4 -> 3 -> 2 with biases. FLOPs per sample: 3 (2 4 + 1) = 27, 2 (2 3 + 1) = 14.
    const auto found = works(chain({linear("a", 3), linear("b", 2)}, {{4}}), 2);
    CHECK(found[0].forward.products == 54);
    CHECK(found[0].forward.bytes == 4 * (2 * 4 + 2 * 3 + 15));
    CHECK(found[0].input_gradient.kernels == 0);  // nobody asks for the gradient of the data
    CHECK(found[0].weight_gradient.products == 54);
    // Gradients of weights are written, then added: read twice, written once more.
    CHECK(found[0].weight_gradient.bytes == 4 * (2 * 3 + 2 * 4 + 4 * 15));
    CHECK(found[1].input_gradient.products == 28);
    CHECK(found[1].input_gradient.bytes == 4 * (2 * 2 + 8 + 2 * 3));
    CHECK(found[1].output == 4 * 2 * 2);
  }

  TEST_CASE("in front of what is trained nothing is kept and no backward runs; biases alone need no product") {
    // Two samples, 4 -> 3 -> relu -> 3 -> 2.
    ModelGraph graph = chain({linear("a", 3), layer("r", "relu"), linear("b", 3), linear("c", 2)}, {{4}});
    graph.layers[0].frozen.all = true;
    graph.layers[2].frozen.names = {"weight"};
    graph.layers[3].frozen.all = true;
    const auto found = works(graph, 2);
    for (const std::size_t body : {0, 1}) {
      CHECK(found[body].saved == 0);
      CHECK(found[body].input_gradient.kernels + found[body].weight_gradient.kernels == 0);
    }
    CHECK(found[2].input_gradient.kernels == 0);
    CHECK(found[2].weight_gradient.products ==
          doctest::Approx(2.0 * 3 * (2 * 3 + 1) * 3 / 12));  // 3 of 12 elements
    CHECK(found[2].weight_gradient.bytes == 4 * (2 * 3 + 2 * 3 / 4.0 + 4 * 3));
    CHECK(found[3].input_gradient.products == 28);  // as in the first case
    CHECK(found[3].weight_gradient.kernels == 0);
    const Profile profile =
        estimate_profile(graph, plain_device(), {.micro_batch_sizes = {2}, .automatic_sizes = false});
    CHECK(profile.layers[0].parameters == Bytes(60));
    CHECK(profile.layers[0].trained == Bytes(0));
    CHECK(profile.layers[2].trained == Bytes(12));
    CHECK(profile.optimizers[0].parameters == Bytes(12));
    CHECK((parse_profile(dump_json(to_json(profile))) == profile));
  }

  TEST_CASE("each tensor is kept by the first layer that keeps it") {
    // relu keeps what it hands on, so the second linear's input is there already; flatten renames it.
    const auto found =
        works(chain({linear("a", 3), layer("r", "relu"), layer("f", "flatten"), linear("b", 2)}, {{4}}), 5);
    CHECK(found[0].saved == 4 * 5 * 4);
    CHECK(found[0].saved_input == found[0].saved);
    CHECK(found[1].saved == 4 * 5 * 3);
    CHECK(found[1].saved_input == 0);
    CHECK(found[2].saved == 0);
    CHECK(found[2].forward.kernels == 0);
    CHECK(found[3].saved == 0);
  }

  TEST_CASE("dropout keeps a byte for each element") {
    const auto found = works(chain({linear("a", 6), layer("d", "dropout", {{"p", 0.5}})}, {{4}}), 3);
    CHECK(found[1].saved == 3 * 6);
  }

  TEST_CASE("attention with dropout keeps its shares, its projections and its masks") {
    // 8 positions of width 4 in 2 heads, one sample: input 32, 3 + 2 projections of 32 each, 2 8 8 shares
    // before and behind dropout; a byte for each of these, and in the causal mask for each pair of positions.
    const auto found =
        works(chain({layer("a", "multi_head_attention",
                           {{"num_heads", std::int64_t{2}}, {"causal", true}, {"dropout", 0.5}})},
                    {{8, 4}}),
              1, DType::bfloat16);
    CHECK(found[0].saved == 2 * (32 + 5 * 32 + 2 * 128) + 128 + 64);
    CHECK(found[0].saved_input == 2 * 32);
  }

  TEST_CASE("attention by LibTorch's kernels keeps no shares, however many positions there are") {
    // Input, 3 projections and the result of 1024 x 128 each, and a number for each of 4 heads and 1024
    // queries.
    const auto self =
        works(chain({layer("a", "multi_head_attention", {{"num_heads", std::int64_t{4}}, {"causal", true}})},
                    {{1024, 128}}),
              1);
    CHECK(self[0].saved == 4 * (5 * 1024 * 128 + 4 * 1024));
    CHECK(self[0].workspace < 4 * 12 * 1024 * 128);
  }

  TEST_CASE("integers keep their own size") {
    const auto found =
        works(chain({layer("e", "embedding",
                           {{"num_embeddings", std::int64_t{9}}, {"embedding_dim", std::int64_t{2}}})},
                    {{5}, DType::int64}),
              1, DType::bfloat16);
    CHECK(found[0].saved == 8 * 5);
    CHECK(found[0].output == 2 * 10);
  }
}

TEST_SUITE("libprofile/estimate") {
  TEST_CASE("times follow from work and rates, and are marked as estimated") {
    const Profile profile =
        estimate_profile(chain({linear("a", 3)}, {{4}}), plain_device(), {.micro_batch_sizes = {1, 2}});
    const LayerPoint& point = profile.layers[0].points[1];
    // 54 FLOPs in 116 bytes; backward 54 in 296.
    CHECK(point.forward.median.count() == doctest::Approx(116e-12));
    CHECK(point.backward.median.count() == doctest::Approx(296e-12));
    CHECK(point.input_gradient->median.count() == 0);
    CHECK(point.forward.samples == 0);
    CHECK(profile.mode == ProfileMode::estimated);
    CHECK(profile.estimated == std::vector<std::string>{"forward_s", "backward_s", "input_gradient_s",
                                                        "weight_gradient_s", "saved_bytes", "workspace_bytes",
                                                        "update_s"});
    CHECK(parse_profile(dump_json(to_json(profile))) == profile);
  }

  TEST_CASE("an update touches weights, gradients and state") {
    const Profile profile =
        estimate_profile(chain({linear("a", 3)}, {{4}}), plain_device(), {.micro_batch_sizes = {1}});
    // 60 bytes: read and written, the gradient read and cleared, the state (sgd: as much) read and written.
    CHECK(profile.optimizers[0].name == "sgd");
    CHECK(profile.optimizers[0].update.median.count() == doctest::Approx(6 * 60e-12));
    CHECK(profile.optimizers[1].state_bytes_per_parameter_byte == 2);
  }

  TEST_CASE("every built-in model has an estimate that is above zero and grows with the micro-batch") {
    for (const model::Family& family : model::families()) {
      INFO(family.row.name);
      const Profile profile =
          estimate_profile(model::build_family(family.row.name), plain_device(), {.micro_batch_sizes = {1, 4}});
      double small = 0, large = 0;
      for (const LayerProfile& one : profile.layers) {
        small += (one.points[0].forward.median + one.points[0].backward.median).count();
        large += (one.points[1].forward.median + one.points[1].backward.median).count();
        CHECK(one.points[1].output.value >= one.points[0].output.value);
      }
      CHECK(small > 0);
      CHECK(large > small);
    }
  }

  TEST_CASE("a model of 175e9 parameters needs shapes alone") {
    const ModelGraph graph =
        model::build_family("gpt2:layers=96,width=12288,heads=96,sequence=2048,tied=0,dropout=0");
    const Profile profile =
        estimate_profile(graph, plain_device(), {.micro_batch_sizes = {1}, .dtype = DType::bfloat16});
    std::int64_t parameters = 0;
    for (const LayerProfile& one : profile.layers) parameters += one.parameter_count;
    // 96 (12 w^2 + 13 w) + 2 w vocabulary + w sequence + 2 w, w = 12288, vocabulary 50257.
    CHECK(parameters ==
          96 * (12 * 12288LL * 12288 + 13 * 12288) + 2 * 12288LL * 50257 + 12288 * 2048 + 2 * 12288);
  }

  TEST_CASE("automatic sizes double as long as every layer fits") {
    DeviceSpec device = plain_device();
    // relu: input and output gradients and the output, 4 bytes for 1000 elements each, and what is kept.
    device.memory = Bytes(4 * 4 * 4 * 1000);
    const Profile profile = estimate_profile(chain({linear("a", 1000), layer("r", "relu")}, {{4}}), device,
                                             {.automatic_sizes = true});
    CHECK(profile.micro_batch_sizes == std::vector<std::int64_t>{1, 2, 4});
  }

  TEST_CASE("sizes that do not rise, and layers without arithmetic, are refused") {
    const auto refusal = [](const ModelGraph& graph, const EstimateOptions& options) -> std::string {
      try {
        estimate_profile(graph, plain_device(), options);
      } catch (const Error& error) {
        return error.what();
      }
      return "accepted";
    };
    CHECK(refusal(chain({linear("a", 3)}, {{4}}), {.micro_batch_sizes = {4, 2}}) ==
          "micro-batch sizes [4, 2] must rise, each once; give them like 1,2,4");
    CHECK(refusal(chain({layer("o", "opaque")}, {{4}}), {.micro_batch_sizes = {1}}) ==
          "layer o is opaque and has no arithmetic to estimate; give a model of real operations");
  }
}
