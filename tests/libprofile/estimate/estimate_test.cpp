// Profiles by arithmetic: FLOPs, bytes moved and kept, and that nothing is allocated for huge models.
#include "libprofile/estimate/estimate.h"

#include <array>
#include <nlohmann/json.hpp>

#include "libprofile/core/blocks.h"
#include "libprofile/core/error.h"
#include "libprofile/core/ops/op_table.h"
#include "libprofile/core/profile.h"
#include "libprofile/estimate/layer_work.h"
#include "libprofile/estimate/two_queues.h"
#include "libprofile/model/families/catalogue.h"
#include "libprofile/model/families/families.h"
#include "tests/libprofile/estimate/chains.h"
#include "tests/support/doctest.h"

namespace estimate_test {

using namespace pp;
using namespace pp::profile;

using namespace pp::profile::test;

TEST_SUITE("libprofile/estimate/layers") {
  TEST_CASE("a linear layer moves inputs, outputs and weights, and has both gradients") {
    // Two samples, 4 -> 3 -> 2 with biases. FLOPs per sample: 3 (2 4 + 1) = 27, 2 (2 3 + 1) = 14.
    const auto found = works(chain({linear("a", 3), linear("b", 2)}, {{4}}), 2);
    CHECK(sum(found[0].forward).products == 54);
    CHECK(sum(found[0].forward).bytes == 4 * (2 * 4 + 2 * 3 + 15));
    CHECK(sum(found[0].input_gradient).kernels == 0);  // nobody asks for the gradient of the data
    CHECK(sum(found[0].weight_gradient).products == 54);
    // Gradients of weights are written, then added: read twice, written once more.
    CHECK(sum(found[0].weight_gradient).bytes == 4 * (2 * 3 + 2 * 4 + 4 * 15));
    CHECK(sum(found[1].input_gradient).products == 28);
    CHECK(sum(found[1].input_gradient).bytes == 4 * (2 * 2 + 8 + 2 * 3));
    CHECK(found[1].output == 4 * 2 * 2);
    // The gradient of the output; the product adds that of the weights to the mini-batch's.
    CHECK(found[0].workspace == 4 * 2 * 3);
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
      CHECK(sum(found[body].input_gradient).kernels + sum(found[body].weight_gradient).kernels == 0);
    }
    CHECK(sum(found[2].input_gradient).kernels == 0);
    CHECK(sum(found[2].weight_gradient).products ==
          doctest::Approx(2.0 * 3 * (2 * 3 + 1) * 3 / 12));  // 3 of 12 elements
    CHECK(sum(found[2].weight_gradient).bytes == 4 * (2 * 3 + 2 * 3 / 4.0 + 4 * 3));
    CHECK(sum(found[3].input_gradient).products == 28);  // as in the first case
    CHECK(sum(found[3].weight_gradient).kernels == 0);
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
    CHECK(sum(found[2].forward).kernels == 0);
    CHECK(found[3].saved == 0);
  }

  TEST_CASE("dropout keeps a byte for each element") {
    const auto found = works(chain({linear("a", 6), layer("d", "dropout", {{"p", 0.5}})}, {{4}}), 3);
    CHECK(found[1].saved == 3 * 6);
  }

  TEST_CASE("attention with dropout keeps its shares, its projections and its masks") {
    // 8 positions of width 4 in 2 heads, one sample: input 32, 3 projections and the mixture, 32 each, 2 8 8
    // shares before and behind dropout; a byte for each of these, and in the causal mask for each pair of
    // positions.
    const auto found =
        works(chain({layer("a", "multi_head_attention",
                           {{"num_heads", std::int64_t{2}}, {"causal", true}, {"dropout", 0.5}})},
                    {{8, 4}}),
              1, DType::bfloat16);
    CHECK(found[0].saved == 2 * (32 + 4 * 32 + 2 * 128) + 128 + 64);
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

  TEST_CASE(
      "attention is four kinds of work: projections, products of scores, passes over them, or one kernel") {
    // 8 positions of width 4 in 2 heads, 3 samples: projections 8 8 4^2 + 4 8 4 biases; attention 4 8^2 4 + 5 2
    // 8^2.
    const auto attention = [](double dropout) {
      return works(chain({linear("a", 4),
                          layer("m", "multi_head_attention",
                                {{"num_heads", std::int64_t{2}}, {"causal", true}, {"dropout", dropout}})},
                         {{8, 4}}),
                   3)[1];
    };
    const LayerWork kernel = attention(0);
    REQUIRE(kernel.forward.size() == 2);
    CHECK(kernel.forward[0].kind == WorkKind::product);
    CHECK(kernel.forward[0].products == 3 * (8 * 8 * 16 + 4 * 8 * 4));
    CHECK(kernel.forward[0].product_calls == 2);
    CHECK(kernel.forward[1].kind == WorkKind::attention);
    CHECK(kernel.forward[1].products == 3 * (4 * 64 * 4 + 5 * 2 * 64) / 2);  // the mask hides half
    // Five products backward in place of two.
    CHECK(kernel.input_gradient[1].products == 2.5 * kernel.forward[1].products);
    CHECK(kernel.weight_gradient[0].products == kernel.forward[0].products);
    const LayerWork written = attention(0.5);
    REQUIRE(written.forward.size() == 3);
    CHECK(written.forward[1].products == 3 * (4 * 64 * 4 + 5 * 2 * 64));  // masked scores are computed, too
    CHECK(written.forward[2].products == 0);
    // Queries, keys, values and results twice, nine passes over the scores.
    CHECK(written.forward[2].bytes == 4 * 3 * (2 * 5 * 8 * 4 + 9 * 2 * 64));
    CHECK(written.input_gradient[1].products == 2 * written.forward[1].products);
    CHECK(sum(written.forward).kernels == find_op("multi_head_attention")->work.kernels);
  }

  TEST_CASE("inside a graph each node is work of its own, a node alone as the layer it would be") {
    Layer graph{.name = "g", .op = "graph", .inputs = {}, .attributes = {}};
    graph.nodes = {linear("a", 3), layer("r", "relu"), linear("b", 2)};
    graph.nodes[0].inputs = {"x"};
    graph.nodes[1].inputs = {"a"};
    graph.nodes[2].inputs = {"r"};
    graph.outputs = {"b"};
    ModelGraph model = chain({graph}, {{4}});
    model.layers[0].inputs = {"x"};
    const auto whole = works(model, 5);
    const auto apart = works(chain({linear("a", 3), layer("r", "relu"), linear("b", 2)}, {{4}}), 5);
    REQUIRE(whole[0].forward.size() == 3);
    for (const std::size_t n : {0, 1, 2}) {
      CHECK(whole[0].forward[n].products == apart[n].forward[0].products);
      CHECK(whole[0].forward[n].vector == apart[n].forward[0].vector);
      CHECK(whole[0].forward[n].bytes == apart[n].forward[0].bytes);
    }
  }

  TEST_CASE("a product is aligned where both sides of its weights are multiples of 16 bytes") {
    const auto aligned = [](std::int64_t in, std::int64_t out, DType dtype) {
      return static_cast<bool>(works(chain({linear("a", out)}, {{in}}), 1, dtype)[0].forward[0].aligned);
    };
    CHECK(aligned(8, 16, DType::bfloat16));
    CHECK_FALSE(aligned(8, 50257, DType::bfloat16));
    CHECK_FALSE(aligned(12, 16, DType::bfloat16));
    CHECK(aligned(12, 4, DType::float32));
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

  TEST_CASE("host and device are two queues, and a pass takes what the longer one does") {
    // Kernels of 1e12 bytes/s: 2, 8 and 1 us; three launches of 4 us each. The device begins at 4 and ends at
    // 6, waits until 8 and ends at 16, then has the third launch, of 12, and ends at 17.
    DeviceSpec device = plain_device();
    TrainerSpec trainer;
    trainer.launch = Seconds(4e-6);
    std::vector<LayerWork> works(3);
    for (const std::size_t l : {0, 1, 2})
      works[l].forward = {{.bytes = std::array{2e6, 8e6, 1e6}.at(l), .kernels = 1}};
    const auto times = layer_times(works, {device, device.types.front(), device.types.front(), trainer, {}, 1});
    CHECK(times[0].forward.count() == doctest::Approx(6e-6));
    CHECK(times[1].forward.count() == doctest::Approx(10e-6));
    CHECK(times[2].forward.count() == doctest::Approx(1e-6));
    // Without launches each takes its own time, and equal layers take equal bits.
    trainer.launch = Seconds(0);
    CHECK(layer_times(works, {device, device.types.front(), device.types.front(), trainer, {}, 1})[1].forward ==
          Seconds(8e-6));
  }

  TEST_CASE("an all-reduce of a group takes 2 (t - 1) steps") {
    // Four members, 3e6 bytes at 1e9 bytes/s, 10 us a step: 6/4 of 3 ms and two calls of 60 us.
    const DeviceSpec device = plain_device();
    std::vector<LayerWork> works(1);
    works[0].forward_reductions = {2, 3e6};
    const Link link{.bandwidth = BytesPerSecond(1e9), .latency = Seconds(1e-5)};
    TrainerSpec trainer;
    const auto time = [&] {
      return layer_times(works, {device, device.types.front(), device.types.front(), trainer, link, 4})[0]
          .forward.count();
    };
    CHECK(time() == doctest::Approx(4.5e-3 + 120e-6));
    trainer.hidden_tensor = 0.75;  // products hide three quarters
    CHECK(time() == doctest::Approx((4.5e-3 + 120e-6) / 4));
  }

  TEST_CASE("a context group's gathers take their bytes and a latency each, but what attention hides") {
    const DeviceSpec device = plain_device();
    std::vector<LayerWork> works(1);
    works[0].forward_gathers = {3, 3e6};
    works[0].backward_gathers = {6, 6e6};
    TrainerSpec trainer;
    trainer.hidden_context = 0.5;
    const Link link{.bandwidth = BytesPerSecond(1e9), .latency = Seconds(1e-5)};
    const LayerTime time =
        layer_times(works, {device, device.types.front(), device.types.front(), trainer, {}, 1, link})[0];
    CHECK(time.forward.count() == doctest::Approx((3e-3 + 30e-6) / 2));
    CHECK(time.input_gradient.count() == doctest::Approx((6e-3 + 60e-6) / 2));
  }

  TEST_CASE("an update touches weights, gradients and state") {
    const Profile profile =
        estimate_profile(chain({linear("a", 3)}, {{4}}), plain_device(), {.micro_batch_sizes = {1}});
    // 60 bytes: read and written, the gradient read and cleared, the state (sgd: as much) read and written.
    CHECK(profile.optimizers[0].name == "sgd");
    CHECK(profile.optimizers[0].update.median.count() == doctest::Approx(6 * 60e-12));
    CHECK(profile.optimizers[1].state_bytes_per_parameter_byte == 2);
  }

  TEST_CASE("an update takes a fixed time where the trainer says one") {
    TrainerSpec trainer;
    trainer.update = Seconds(1e-3);
    const Profile profile = estimate_profile(chain({linear("a", 3)}, {{4}}), plain_device(),
                                             {.micro_batch_sizes = {1}, .trainer = trainer});
    CHECK(profile.optimizers[0].update.median.count() == doctest::Approx(1e-3 + 6 * 60e-12));
    const UpdateLine line = update_line(profile.optimizers[0]);
    CHECK(line.fixed.count() == doctest::Approx(1e-3));
    CHECK(line.seconds_per_byte == doctest::Approx(6e-12).epsilon(1e-3));
  }

  TEST_CASE("what a context takes is not there for tensors") {
    DeviceSpec device = plain_device();
    device.context = Bytes(1000);
    const Profile profile =
        estimate_profile(chain({linear("a", 3)}, {{4}}), device, {.micro_batch_sizes = {1}});
    CHECK(profile.device.memory == device.memory - Bytes(1000));
    // A trainer's processes hold it beside their own buffers: plans subtract both.
    TrainerSpec trainer;
    trainer.name = "some";
    trainer.process = Bytes(500);
    const Profile trained = estimate_profile(chain({linear("a", 3)}, {{4}}), device,
                                             {.micro_batch_sizes = {1}, .trainer = trainer});
    CHECK(trained.device.memory == device.memory);
    CHECK(trained.trainer->process == Bytes(1500));
    CHECK(profile_from_json(to_json(trained)) == trained);
  }

  TEST_CASE("a trainer's attention is one kernel although the model drops shares, and its loss keeps float32") {
    // Two blocks of 4 heads and 32 positions: 2 * 4 * 32^2 scores of a sample are kept as shares of 4 bytes, as
    // masks of one and behind dropout again, where they are written. 32 * 1000 logits.
    const auto saved = [](double dropout, AttentionKernel kernel, double logit_bytes) {
      const ModelGraph graph =
          model::build_family("gpt2:layers=2,width=64,heads=4,sequence=32,vocabulary=1000,tied=0,dropout=" +
                              std::to_string(dropout));
      TrainerSpec trainer;
      trainer.attention = kernel;
      trainer.logit_bytes = logit_bytes;
      Bytes sum;
      const Profile profile =
          estimate_profile(graph, plain_device(), {.micro_batch_sizes = {1}, .trainer = trainer});
      for (const LayerProfile& layer : profile.layers)
        if (layer.name.find("attention") != std::string::npos) sum += layer.points[0].saved;
      return std::pair(sum.value, profile.loss->points[0].saved.value);
    };
    const auto written = saved(0.1, AttentionKernel::by_model, 0),
               kernel = saved(0.1, AttentionKernel::one_kernel, 4);
    CHECK(written.first > kernel.first + 2 * 4 * 32 * 32 * 4);
    CHECK(kernel.first == saved(0, AttentionKernel::by_model, 0).first);
    CHECK(kernel.second == written.second + 4 * 32 * 1000);
  }

  TEST_CASE("composed norms keep float32 inputs and what they scale, gated activations the activated gate") {
    const ModelGraph graph = model::build_family(
        "llama:layers=2,width=64,heads=4,kv_heads=2,head_width=16,hidden=160,vocabulary=512,sequence=32");
    const auto saved = [&](ElementKernels kernels, int degree) {
      TrainerSpec trainer;
      trainer.elements = kernels;
      Bytes sum;
      for (const LayerProfile& layer : estimate_profile(graph, plain_device(),
                                                        {.micro_batch_sizes = {3},
                                                        .tensor_degree = degree,
                                                        .trainer = trainer,
                                                        .tensor_link = Link{.bandwidth = BytesPerSecond(1e9)}})
                                           .layers)
        sum += layer.points[0].saved;
      return sum.value;
    };
    // In float32 a norm keeps two tensors for one, each of five norms; the residual stream keeps none itself.
    const std::int64_t norms = 5 * 64 * 4, gates = 2 * 160 * 4;
    for (const int degree : {1, 2})
      CHECK(saved(ElementKernels::composed, degree) - saved(ElementKernels::fused, degree) ==
            3 * 32 * (norms + gates) / degree);
  }

  TEST_CASE("attention that is recomputed keeps what one kernel would, and takes its forward again") {
    const ModelGraph graph =
        model::build_family("gpt2:layers=2,width=64,heads=4,sequence=32,vocabulary=1000,tied=0,dropout=0.1");
    EstimateOptions options{.micro_batch_sizes = {2}};
    const Profile plain = estimate_profile(graph, plain_device(), options);
    options.checkpoint = Checkpoint::attention;
    const Profile again = estimate_profile(graph, plain_device(), options);
    options.checkpoint = Checkpoint::none;
    options.trainer.attention = AttentionKernel::one_kernel;
    const Profile kernel = estimate_profile(graph, plain_device(), options);
    CHECK(again.context.at("checkpoint") == "attention");
    for (std::size_t l = 0; l < graph.layers.size(); ++l) {
      const LayerPoint &a = plain.layers[l].points[0], &b = again.layers[l].points[0];
      INFO(graph.layers[l].name);
      const bool attention = graph.layers[l].name.ends_with("attention");
      CHECK(b.forward == a.forward);
      CHECK(b.saved == kernel.layers[l].points[0].saved);
      CHECK((b.saved < a.saved) == attention);
      CHECK(b.workspace + b.saved == a.workspace + a.saved);
      CHECK((b.backward.median > a.backward.median) == attention);
      CHECK(b.backward.median < a.backward.median + a.forward.median + Seconds(1e-15));
    }
  }

  TEST_CASE("members of a group without sequence parallelism hand on a part each, and keep the whole") {
    const ModelGraph graph =
        model::build_family("gpt2:layers=2,width=64,heads=4,sequence=32,vocabulary=1024,tied=0,dropout=0");
    EstimateOptions options{.micro_batch_sizes = {1},
                            .tensor_degree = 4,
                            .sequence_parallel = false,
                            .checkpoint = Checkpoint::blocks,
                            .tensor_link = Link{.bandwidth = BytesPerSecond(1e9)}};
    const Profile profile = estimate_profile(graph, plain_device(), options);
    const auto block = std::ranges::find_if(
        profile.layers, [](const LayerProfile& layer) { return layer.name.starts_with("block1"); });
    CHECK((block - 1)->points[0].output == Bytes(32 * 64 * 4 / 4));
    CHECK(block->points[0].saved == Bytes(32 * 64 * 4));
  }

  TEST_CASE("checkpointed blocks keep their inputs, and a backward runs their forward again") {
    const ModelGraph graph =
        model::build_family("gpt2:layers=2,width=64,heads=4,sequence=32,vocabulary=1000,tied=0,dropout=0");
    EstimateOptions options{.micro_batch_sizes = {2}};
    const Profile plain = estimate_profile(graph, plain_device(), options);
    options.checkpoint = Checkpoint::blocks;
    const Profile again = estimate_profile(graph, plain_device(), options);
    Bytes kept, before;
    for (std::size_t l = 0; l < graph.layers.size(); ++l) {
      const LayerPoint &a = plain.layers[l].points[0], &b = again.layers[l].points[0];
      INFO(graph.layers[l].name);
      const bool inside = graph.layers[l].name.starts_with("block");
      CHECK(b.forward == a.forward);
      CHECK(b.backward.median.count() ==
            doctest::Approx((a.backward.median + (inside ? a.forward.median : Seconds(0))).count()));
      CHECK(b.backward.median == b.input_gradient->median + b.weight_gradient->median);
      if (!inside) CHECK(b.saved == a.saved);
      if (inside) kept += b.saved;
      if (graph.layers[l].name.starts_with("block1")) before += a.saved;
    }
    CHECK(kept == Bytes(2 * 4 * 2 * 32 * 64));  // of two blocks one float32 tensor of 2 samples each
    CHECK(again.layers.back().points[0].workspace == plain.layers.back().points[0].workspace);
    for (std::size_t l = 0; l < graph.layers.size(); ++l) {
      if (graph.layers[l].name == "block1.gelu")
        CHECK(again.layers[l].points[0].workspace == plain.layers[l].points[0].workspace + before);
    }
    CHECK(again.context.at("checkpoint") == "blocks");
  }

  TEST_CASE("a checkpointed block keeps its inputs behind frozen layers too, whose forward it repeats") {
    ModelGraph graph =
        model::build_family("gpt2:layers=2,width=64,heads=4,sequence=32,vocabulary=1000,tied=0,dropout=0");
    for (Layer& layer : graph.layers)
      layer.frozen.all = layer.name.ends_with("embedding") || layer.name == "block0.norm1";
    EstimateOptions options{.micro_batch_sizes = {2}};
    const Profile plain = estimate_profile(graph, plain_device(), options);
    options.checkpoint = Checkpoint::blocks;
    const Profile again = estimate_profile(graph, plain_device(), options);
    Bytes kept;
    Seconds forward, more;
    for (std::size_t l = 0; l < graph.layers.size(); ++l) {
      if (!graph.layers[l].name.starts_with("block0.")) continue;
      kept += again.layers[l].points[0].saved;
      forward += plain.layers[l].points[0].forward.median;
      more += again.layers[l].points[0].backward.median - plain.layers[l].points[0].backward.median;
    }
    CHECK(kept == Bytes(4 * 2 * 32 * 64));
    CHECK(more.count() == doctest::Approx(forward.count()));
  }

  TEST_CASE("blocks are numbered parts of names with others behind them") {
    CHECK(block_number("block12.norm1") == 12);
    CHECK(block_number("model.layers.3.mlp.up_proj") == 3);
    CHECK(block_number("norm1") == -1);
    CHECK(block_number("model.norm") == -1);
    const ModelGraph graph =
        chain({linear("a", 2), linear("h.0.x", 2), linear("h.0.y", 2), linear("h.1.x", 2)}, {{4}});
    CHECK(blocks_of(graph) == std::vector<Block>{{0, 1, 3}, {1, 3, 4}});
    // Sums of an imported block have its own name; what stands behind the last block is in none.
    const ModelGraph imported = chain({linear("h.0.x", 2), linear("h.0", 2), linear("h.0.y", 2),
                                       linear("h.0/2", 2), linear("h.1.x", 2), linear("h", 2)},
                                      {{4}});
    CHECK(blocks_of(imported) == std::vector<Block>{{0, 0, 4}, {1, 4, 5}});
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
    CHECK(
        refusal(chain({linear("a", 3)}, {{4}}), {.micro_batch_sizes = {1}, .checkpoint = Checkpoint::blocks}) ==
        "the layers of chain are in no numbered blocks, such as block3.norm, that could be checkpointed; leave "
        "out --checkpoint, or plan with --recompute never");
    CHECK(refusal(chain({layer("o", "opaque")}, {{4}}), {.micro_batch_sizes = {1}}) ==
          "layer o is opaque and has no arithmetic to estimate; give a model of real operations");
  }
}

}  // namespace estimate_test
