// Layers divided between the members of a tensor group: what each does, holds, keeps and exchanges.
#include "libprofile/estimate/tensor_split.h"

#include <nlohmann/json.hpp>

#include "libprofile/core/error.h"
#include "libprofile/estimate/estimate.h"
#include "libprofile/estimate/layer_work.h"
#include "libprofile/estimate/token_choice.h"
#include "libprofile/estimate/two_queues.h"
#include "libprofile/model/families/families.h"
#include "libprofile/model/families/hugging_face.h"
#include "tests/libprofile/core/error_text.h"
#include "tests/libprofile/estimate/chains.h"
#include "tests/support/doctest.h"

namespace tensor_split_test {

using namespace pp;
using namespace pp::profile;
using namespace pp::profile::test;
using pp::test::error_text;

namespace {

DeviceSpec device() {
  DeviceSpec device;
  device.name = "plain";
  device.memory = Bytes(std::int64_t{1} << 40);
  device.memory_bandwidth = device.cache_bandwidth = BytesPerSecond(1e12);
  device.tensor_link = Link{.bandwidth = BytesPerSecond(1e11)};
  for (const DType dtype : {DType::float32, DType::bfloat16}) device.types.push_back({dtype, 1e12, 1e12, 1, 0});
  return device;
}

const char* const kSmall = "gpt2:layers=2,width=64,heads=4,sequence=32,vocabulary=1000,tied=0,dropout=0";

Profile estimated(const std::string& model, int degree, bool sequence_parallel = true) {
  EstimateOptions options{.micro_batch_sizes = {2}, .dtype = DType::bfloat16};
  options.tensor_degree = degree;
  options.sequence_parallel = sequence_parallel;
  return estimate_profile(pp::model::build_family(model), device(), options);
}

const LayerProfile& layer_of(const Profile& profile, const std::string& name) {
  for (const LayerProfile& layer : profile.layers)
    if (layer.name == name) return layer;
  throw Error(ErrorKind::internal, "no layer " + name);
}

std::string refusal(const std::string& model, int degree) {
  try {
    estimated(model, degree);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_SUITE("libprofile/estimate/tensor_split") {
  TEST_CASE("a member holds its part of the matrices, whole norms and sums, and a padded vocabulary") {
    const Profile profile = estimated(kSmall, 4);
    CHECK(profile.tensor_degree == 4);
    // By columns: 256 / 4 rows of 64 and as many biases; by rows: 64 rows of 256 / 4, and all 64 biases.
    CHECK(layer_of(profile, "block0.fc1").parameter_count == 64 * 64 + 64);
    CHECK(layer_of(profile, "block0.fc2").parameter_count == 64 * 64 + 64);
    // (3 + 1) 64^2 / 4, and the vectors: 3 64 + 64.
    CHECK(layer_of(profile, "block0.attention").parameter_count == 64 * 64 + 256);
    CHECK(layer_of(profile, "block0.norm1").parameter_count == 128);
    // 1000 rows become 1024, the next multiple of 4 128.
    CHECK(layer_of(profile, "token_embedding").parameter_count == 256 * 64);
    CHECK(layer_of(profile, "head").parameter_count == 256 * 64);
    CHECK(layer_of(profile, "position_embedding").parameter_count == 32 * 64);
  }

  TEST_CASE("a member holds the sinks of its heads") {
    EstimateOptions options{.micro_batch_sizes = {2}, .dtype = DType::bfloat16, .tensor_degree = 2};
    options.sequence_parallel = true;
    const ModelGraph model = pp::model::build_hugging_face(
        parse_json(R"({"model_type": "gpt_oss", "vocab_size": 64, "hidden_size": 32,
      "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 8, "num_key_value_heads": 2,
      "head_dim": 4, "max_position_embeddings": 16, "num_local_experts": 4, "num_experts_per_tok": 2})"),
        "");
    const Profile profile = estimate_profile(model, device(), options);
    CHECK(layer_of(profile, "model.layers.0.self_attn").parameter_count == 4);
    // All experts: router, 32 32 upwards and 16 32 downwards, and their biases.
    CHECK(layer_of(profile, "model.layers.0.mlp").parameter_count ==
          33 * 4 + 4 * (32 * 32 + 32 + 16 * 32 + 32));
  }

  TEST_CASE(
      "members of a group join the positions that each has in front of the head, not in front of attention") {
    const ModelGraph model = pp::model::build_hugging_face(
        parse_json(R"({"model_type": "deepseek_v3", "vocab_size": 512, "hidden_size": 16,
      "intermediate_size": 24, "moe_intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
      "num_key_value_heads": 2, "n_shared_experts": 1, "n_routed_experts": 8, "kv_lora_rank": 4, "q_lora_rank": 6,
      "qk_rope_head_dim": 4, "v_head_dim": 8, "qk_nope_head_dim": 8, "n_group": 4, "topk_group": 2,
      "num_experts_per_tok": 2, "first_k_dense_replace": 0, "num_nextn_predict_layers": 1,
      "max_position_embeddings": 16})"),
        "mtp=1");
    const auto joined = [&](int tensor, int context) {
      EstimateOptions options{.micro_batch_sizes = {2},
                              .dtype = DType::bfloat16,
                              .tensor_degree = tensor,
                              .context_degree = context};
      options.sequence_parallel = true;
      return estimate_profile(model, device(), options);
    };
    const auto output = [](const Profile& profile, const char* name) {
      return layer_of(profile, name).points[0].output.value;
    };
    // Two samples of twice 16 positions of width 16, in two bytes.
    CHECK(output(joined(1, 1), "predictions") == 2 * 32 * 16 * 2);
    CHECK(output(joined(2, 1), "predictions") == 32 * 16 * 2);
    CHECK(output(joined(1, 2), "predictions") == 32 * 16 * 2);
    CHECK(layer_of(joined(2, 1), "lm_head").parameter_count == 256 * 16);
    CHECK(layer_of(joined(2, 1), "model.layers.1.embed_tokens").parameter_count == 256 * 16);
    CHECK(layer_of(joined(1, 1), "model.layers.1.eh_proj").forward_flops_per_sample.value ==
          2.0 * 16 * 32 * 16);
    ModelGraph mixed = model;  // attention reads the joined positions
    std::ranges::find(mixed.layers, "model.layers.1.hnorm", &Layer::name)->inputs = {"both"};
    std::ranges::find(mixed.layers, "model.layers.1.enorm", &Layer::name)->inputs = {"both"};
    mixed.layers.insert(std::ranges::find(mixed.layers, "model.layers.1.enorm", &Layer::name),
                        {"both", "concat", {"model.norm", "model.layers.1.embed_tokens"}, {}});
    std::erase_if(mixed.layers, [](const Layer& layer) { return layer.name == "predictions"; });
    mixed.layers.back().inputs = {"model.layers.1.shared_head.norm"};
    EstimateOptions options{.micro_batch_sizes = {2}, .dtype = DType::bfloat16, .tensor_degree = 2};
    CHECK_THROWS_WITH_AS(estimate_profile(mixed, device(), options),
                         "layer both is concat, which 2 devices cannot divide; use --tensor 1, or a "
                         "transformer of linear and attention layers",
                         Error);
  }

  TEST_CASE("a token needs fewer nodes than experts: those of several experts count once, groups limit them") {
    // Of the six pairs among four experts two lie in one of two nodes, four in both.
    CHECK(nodes_of_token({4, 2}, 2) == doctest::Approx((2 * 1 + 4 * 2) / 6.0));
    CHECK(nodes_of_token({4, 2}, 4) == doctest::Approx(2));
    CHECK(nodes_of_token({4, 4}, 2) == doctest::Approx(2));
    // One of two groups is open: a node, or two nodes of one expert each.
    CHECK(nodes_of_token({4, 2, 2, 1}, 2) == doctest::Approx(1));
    CHECK(nodes_of_token({4, 2, 2, 1}, 4) == doctest::Approx(2));
    // Two of four groups of two are open, two groups a node. In a third of the choices both are in one node;
    // else of six pairs two lie in one node and four in both.
    CHECK(nodes_of_token({8, 2, 4, 2}, 2) == doctest::Approx(1 / 3.0 + 2 / 3.0 * (2 * 1 + 4 * 2) / 6));
    // Three nodes and two groups: as if any experts were open.
    CHECK(nodes_of_token({6, 2, 2, 1}, 3) == doctest::Approx(nodes_of_token({6, 2}, 3)));
    // DeepSeek-V3 over eight nodes: half of them are open, each missed by (96 95 .. 89) / (128 127 .. 121) of
    // choices.
    CHECK(nodes_of_token({256, 8, 8, 4}, 8) == doctest::Approx(3.629).epsilon(1e-3));
  }

  TEST_CASE("bytes between nodes and within them move at once, and nodes divide the group") {
    const DeviceSpec plain = device();
    const TrainerSpec trainer;
    const PassRates rates{.device = plain,
                          .rates = plain.types[0],
                          .narrow = plain.types[0],
                          .trainer = trainer,
                          .tensor_link = {},
                          .expert_link = {.bandwidth = BytesPerSecond(10)},
                          .near_link = {.bandwidth = BytesPerSecond(100)}};
    const auto seconds = [&](double bytes, double inside) {
      LayerWork work;
      work.forward_exchanges = {2, bytes, inside};
      return layer_times({work}, rates)[0].forward.count();
    };
    CHECK(seconds(50, 400) == doctest::Approx(5));
    CHECK(seconds(50, 600) == doctest::Approx(6));
    EstimateOptions options{.micro_batch_sizes = {1}, .expert_degree = 4, .expert_nodes = 3};
    const ModelGraph model = pp::model::build_hugging_face(
        parse_json(R"({"model_type": "mixtral", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 16,
      "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 4, "num_local_experts": 4,
      "num_experts_per_tok": 2, "max_position_embeddings": 16})"),
        "");
    CHECK_THROWS_WITH_AS(estimate_profile(model, device(), options),
                         "--expert-nodes 3: must divide --expert-parallel, 4", Error);
  }

  TEST_CASE(
      "with sequence parallelism everything kept is divided, without it what lies between blocks is whole") {
    const Profile one = estimated(kSmall, 1), divided = estimated(kSmall, 4),
                  whole = estimated(kSmall, 4, false);
    const auto saved = [](const Profile& profile, const std::string& name) {
      return layer_of(profile, name).points[0].saved.value;
    };
    for (const char* name : {"block0.norm1", "block0.fc1", "block0.gelu", "block0.fc2", "block0.attention"}) {
      INFO(name);
      CHECK(saved(divided, name) * 4 == saved(one, name));
    }
    // Inputs of norms and of products by columns stay whole, those of gelu and of products by rows do not.
    CHECK(saved(whole, "block0.norm1") == saved(one, "block0.norm1"));
    CHECK(saved(whole, "block0.fc1") == saved(one, "block0.fc1"));
    CHECK(saved(whole, "block0.gelu") * 4 == saved(one, "block0.gelu"));
    CHECK(saved(whole, "block0.fc2") * 4 == saved(one, "block0.fc2"));
    // What a cut hands on: a part of each member.
    for (const Profile& parts : {divided, whole}) {
      CHECK(layer_of(parts, "block0.add2").points[0].output * 4 ==
            layer_of(one, "block0.add2").points[0].output);
    }
  }

  TEST_CASE("a block exchanges two tensors forward and two backward, the ends one each, a loss three numbers") {
    const ResolvedModel model = resolve(pp::model::build_family(kSmall));
    const auto works = layer_work(
        model, split_operations(model, 4),
        {.dtype = DType::bfloat16, .micro_batch_size = 2, .tensor_degree = 4, .sequence_parallel = true});
    const double tensor = 2 * 32 * 64 * 2;  // samples, positions, width, bytes
    Reductions forward, backward;
    for (std::size_t l = 0; l < works.size(); ++l) {
      if (l < model.graph.layers.size() && model.graph.layers[l].name.starts_with("block0")) {
        forward.calls += works[l].forward_reductions.calls;
        forward.bytes += works[l].forward_reductions.bytes;
        backward.calls += works[l].backward_reductions.calls;
        backward.bytes += works[l].backward_reductions.bytes;
      }
    }
    CHECK(forward.calls == 2);
    CHECK(forward.bytes == 2 * tensor);
    CHECK(backward.calls == 2);
    CHECK(backward.bytes == 2 * tensor);
    CHECK(works.front().forward_reductions.bytes == tensor);
    CHECK(works[works.size() - 2].backward_reductions.bytes == tensor);
    CHECK(works.back().forward_reductions.calls == 3);
    CHECK(works.back().forward_reductions.bytes == 3 * 2 * 32 * 4);
  }

  TEST_CASE("queries, keys and values that read one tensor add up its gradient first, gate and up likewise") {
    const ResolvedModel model = resolve(pp::model::build_family(
        "llama:layers=1,width=64,heads=4,kv_heads=2,head_width=16,hidden=128,vocabulary=1024,sequence=32"));
    const auto works = layer_work(model, split_operations(model, 2), {.tensor_degree = 2});
    int forward = 0, backward = 0;
    for (const LayerWork& work : works) {
      forward += work.forward_reductions.calls;
      backward += work.backward_reductions.calls;
    }
    CHECK(forward == 1 + 2 + 3);  // table, block, loss
    CHECK(backward == 2 + 1);     // block, head
  }

  TEST_CASE("a member does its part of the FLOPs") {
    const ResolvedModel model = resolve(pp::model::build_family(
        "llama:layers=2,width=64,heads=4,kv_heads=2,head_width=16,hidden=128,vocabulary=1024,sequence=32"));
    const auto products = [&](int degree) {
      double sum = 0;
      for (const LayerWork& layer :
           layer_work(model, split_operations(model, degree), {.tensor_degree = degree}))
        for (const auto* works : {&layer.forward, &layer.input_gradient, &layer.weight_gradient})
          for (const Work& work : *works) sum += work.products;
      return sum;
    };
    CHECK(products(2) == doctest::Approx(products(1) / 2));
  }

  TEST_CASE(
      "members of a context group have samples by halves: as much of everything, and keys and values sent") {
    const ResolvedModel model = resolve(pp::model::build_family(
        "llama:layers=2,width=64,heads=4,kv_heads=2,head_width=16,hidden=128,vocabulary=1024,sequence=32"));
    for (const int tensor : {1, 2}) {
      const auto of = [&](std::int64_t samples, int context) {
        return layer_work(model, split_operations(model, tensor, context),
                          {.dtype = DType::bfloat16,
                           .micro_batch_size = samples,
                           .tensor_degree = tensor,
                           .context_degree = context});
      };
      const auto alone = of(1, 1), group = of(4, 4);
      int gathers = 0;
      for (std::size_t l = 0; l < alone.size(); ++l) {
        CHECK(group[l].saved == alone[l].saved);
        CHECK(group[l].message == alone[l].message);
        CHECK(group[l].forward_reductions.bytes == alone[l].forward_reductions.bytes);
        double products[2] = {0, 0};
        for (const Work& work : alone[l].forward) products[0] += work.products;
        for (const Work& work : group[l].forward) products[1] += work.products;
        CHECK(products[0] == products[1]);
        CHECK(alone[l].forward_gathers.calls == 0);
        if (group[l].forward_gathers.calls == 0) continue;
        ++gathers;
        // From three others 8 of 32 positions of 4 samples, keys and values of 2 heads of 16, two bytes.
        CHECK(group[l].forward_gathers.calls == 3);
        CHECK(group[l].forward_gathers.bytes == 3.0 * 4 * 8 * 2 * 2 * 16 * 2 / tensor);
        CHECK(group[l].backward_gathers.bytes == 2 * group[l].forward_gathers.bytes);
      }
      CHECK(gathers == 2);
    }
  }

  TEST_CASE("a mixture of experts: the chosen count, all are held, tokens go to other members and back") {
    // 6 positions of width 4, 8 experts of width 3, two for each; the linear layer in front wants the gradient.
    const Layer mixture = layer("m", "mixture_of_experts",
                                {{"num_experts", std::int64_t{8}},
                                 {"experts_per_token", std::int64_t{2}},
                                 {"hidden", std::int64_t{3}}});
    const ModelGraph graph = chain({linear("a", 4), mixture}, {{6, 4}});
    const ResolvedModel linear_first = resolve(graph);
    const ResolvedModel words = resolve(chain(
        {layer("e", "embedding", {{"num_embeddings", std::int64_t{256}}, {"embedding_dim", std::int64_t{4}}}),
         mixture},
        {{6}, DType::int64}));
    const auto of = [&](int samples, int tensor, int experts, ExpertKernels kernels = {}, int nodes = 1) {
      const ResolvedModel& model = tensor > 1 ? words : linear_first;
      return layer_work(model, split_operations(model, tensor, 1, experts),
                        {.dtype = DType::float32,
                         .micro_batch_size = samples,
                         .tensor_degree = tensor,
                         .expert_degree = experts,
                         .expert_nodes = nodes,
                         .experts = kernels})[1];
    };
    // Router 2 6 8 4, and for 12 pairs 2 4 6 upwards and 2 3 4 downwards.
    const LayerWork alone = of(1, 1, 1), divided = of(4, 1, 4);
    for (const LayerWork& work : {alone, divided}) {
      CHECK(sum(work.forward).products == 384 + 12 * (48 + 24));
      CHECK(sum(work.input_gradient).products == 384 + 12 * (48 + 24));
      CHECK(sum(work.weight_gradient).products == 384 + 12 * (48 + 24));
      // The input, scores and their shares, what experts get, make and activate, 12 bytes for each pair.
      CHECK(work.saved == 4 * 24 + 2 * 4 * 48 + 4 * 12 * (4 + 6 + 3) + 12 * 12);
      CHECK(work.saved_input == 4 * 24);
    }
    CHECK(alone.forward_exchanges.calls == 0);
    // Twice 12 rows of 4 floats, of which three of four members' experts are elsewhere.
    CHECK(divided.forward_exchanges.bytes == 2 * 12 * 4 * 4 * 3 / 4);
    CHECK(divided.backward_exchanges.bytes == divided.forward_exchanges.bytes);
    // In two nodes: half of the pairs go to the other one, a quarter to the other member of its own; or each
    // token once to the other node where one of its two experts is, and half of the pairs are handed on.
    const LayerWork far = of(4, 1, 4, {}, 2), once = of(4, 1, 4, {.once_per_node = true}, 2);
    CHECK(far.forward_exchanges.bytes == 2 * 12 * 4 * 4 / 2);
    CHECK(far.forward_exchanges.inside == 2 * 12 * 4 * 4 / 4);
    CHECK(once.forward_exchanges.bytes == doctest::Approx(nodes_of_token({8, 2}, 2) * 2 * 6 * 4 * 4 / 2));
    CHECK(once.forward_exchanges.inside == 2 * 12 * 4 * 4 / 2);
    // Weights of all 8 experts, 36 numbers each, or of two: read forward and backward, their gradients in four
    // passes. Two of eight go through another sort: 12 rows of 4 floats read and written, each way and in both
    // directions.
    const auto moved = [](const LayerWork& work) {
      return sum(work.forward).bytes + sum(work.input_gradient).bytes + sum(work.weight_gradient).bytes;
    };
    CHECK(moved(alone) - moved(divided) == 4 * 6 * 36 * (2 + 4) - 4 * 2 * 4 * 48);
    CHECK(sum(of(4, 1, 4, {.imbalance = 1.5}).forward).products == 384 + 1.5 * 12 * 72);
    CHECK(sum(of(1, 1, 1, {.grouped = false}).forward).kernels == sum(alone.forward).kernels + 2 * 7);
    // Members of a tensor group have positions of the same samples.
    CHECK(sum(of(1, 2, 2).forward).products == sum(alone.forward).products / 2);
    CHECK(sum(of(2, 2, 4).forward).products == sum(alone.forward).products / 2);

    EstimateOptions options{.micro_batch_sizes = {1, 2}, .expert_degree = 4};
    options.expert_link = Link{.bandwidth = BytesPerSecond(5e10)};
    const Profile profile = estimate_profile(graph, plain_device(), options);
    CHECK((profile.micro_batch_sizes == std::vector<std::int64_t>{4, 8}));  // one sample or two of each member
    CHECK(profile.layers[1].parameter_count == 32 + 2 * 36);
    CHECK(profile.layers[1].experts == Bytes(4 * 2 * 36));
    CHECK(profile.expert_parallel.sum_s_per_byte == doctest::Approx(2 * 3 / 4.0 / 5e10));
    CHECK(profile.expert_parallel.expert_sum_s_per_byte == 0);
    CHECK((parse_profile(dump_json(to_json(profile))) == profile));

    const auto refused = [&](const ModelGraph& model, int tensor, int experts) {
      options.expert_degree = experts;
      options.tensor_degree = tensor;
      options.tensor_link = options.expert_link;
      return error_text([&] { estimate_profile(model, plain_device(), options); });
    };
    CHECK(refused(graph, 1, 3) ==
          "[usage] layer m has num_experts 8, which 3 devices cannot divide; use "
          "--expert-parallel that divides 8");
    CHECK(refused(graph, 4, 6) ==
          "[usage] --expert-parallel 6: must be a multiple or a divisor of 4, --tensor times "
          "--context-parallel");
    CHECK(refused(chain({linear("a", 4)}, {{6, 4}}), 1, 2) ==
          "[usage] --expert-parallel 2: the model has no mixture_of_experts; leave it out");
  }

  TEST_CASE("a profile of a context group says its size and what its own sum takes") {
    EstimateOptions options{.micro_batch_sizes = {2}, .dtype = DType::bfloat16};
    options.context_degree = 4;
    options.context_link = Link{.bandwidth = BytesPerSecond(5e10)};
    options.trainer.hidden_gradients = 0.25;
    const Profile profile = estimate_profile(pp::model::build_family(kSmall), device(), options);
    CHECK(profile.context_parallel.degree == 4);
    CHECK(profile.context_parallel.sum_s_per_byte == doctest::Approx(0.75 * 2 * 3 / 4.0 / 5e10));
    CHECK(group_size(profile) == 4);
    CHECK((parse_profile(dump_json(to_json(profile))) == profile));
    // Weights are whole: of a member as of a device alone.
    CHECK(layer_of(profile, "block0.fc1").parameters ==
          layer_of(estimated(kSmall, 1), "block0.fc1").parameters);
    const auto refused = [&](const std::string& model, int context) {
      options.context_degree = context;
      try {
        estimate_profile(pp::model::build_family(model), device(), options);
      } catch (const Error& error) {
        CHECK(error.kind() == ErrorKind::usage);
        return std::string(error.what());
      }
      return std::string("accepted");
    };
    CHECK(
        refused(kSmall, 3) ==
        "samples of 32 tokens are not 2 x 3 equal slices, two for each of 3 devices; use a language model with "
        "--context a multiple of 6, or another --context-parallel");
    CHECK(
        refused("vgg16:image=32,classes=10", 2) ==
        "layer features.0 is conv2d, which 2 devices cannot divide; use --context-parallel 1, or a transformer "
        "of linear and attention layers");
  }

  TEST_CASE("what devices cannot divide is refused by layer and number") {
    CHECK(refusal(kSmall, 3) ==
          "layer block0.attention has num_heads 4, which 3 devices cannot divide; use a tensor degree that "
          "divides "
          "4");
    CHECK(refusal(
              "llama:layers=1,width=64,heads=4,kv_heads=2,head_width=16,hidden=128,vocabulary=1024,sequence=32",
              4)
              .ends_with(
                  "num_key_value_heads 2, which 4 devices cannot divide; use a tensor degree that divides 2"));
    CHECK(refusal("vgg16:image=32,classes=10", 2) ==
          "layer features.0 is conv2d, which 2 devices cannot divide; use --tensor 1, or a transformer of "
          "linear and "
          "attention layers");
    DeviceSpec alone = device();
    alone.tensor_link.reset();
    std::string text = "accepted";
    try {
      EstimateOptions options{.micro_batch_sizes = {1}, .dtype = DType::bfloat16};
      options.tensor_degree = 2;
      estimate_profile(pp::model::build_family(kSmall), alone, options);
    } catch (const Error& error) {
      text = error.what();
    }
    CHECK(text ==
          "device plain does not say how the 2 devices of a group are linked; give --tensor-link, such as "
          "300GB/s, or add tensor_link to its file");
  }
}

}  // namespace tensor_split_test
