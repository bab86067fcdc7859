// config.json of Hugging Face: what is read, by which default, and what is refused.
#include "libprofile/model/families/hugging_face.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>

#include "libprofile/core/blocks.h"
#include "libprofile/core/file.h"
#include "libprofile/core/limits.h"
#include "libprofile/core/ops/op_table.h"
#include "libprofile/model/families/families.h"
#include "tests/libprofile/core/error_text.h"
#include "tests/support/doctest.h"

namespace hugging_face_test {

using namespace pp;
using model::build_hugging_face;

namespace {

Json llama() {
  return parse_json(R"({"model_type": "llama", "vocab_size": 19, "hidden_size": 8, "intermediate_size": 12,
    "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64})");
}

/// With other keys.
Json changed(Json config, const Json& keys) {
  for (const auto& [key, value] : keys.items()) config[key] = value;
  return config;
}

std::string refusal(const Json& config, std::string_view arguments = {}) {
  return test::error_text([&] { return build_hugging_face(config, arguments); });
}

const Layer& layer(const ModelGraph& graph, std::string_view name) {
  const auto found = std::ranges::find(graph.layers, name, &Layer::name);
  REQUIRE(found != graph.layers.end());
  return *found;
}

/// A tensor of this attention layer.
double rotary(const ModelGraph& graph, std::string_view key) {
  return number(layer(graph, "model.layers.0.self_attn").attributes, key);
}

}  // namespace

TEST_SUITE("libprofile/model/hugging_face") {
  TEST_CASE("parameters have the names of the published tensors, in the order of the layers") {
    const ResolvedModel model = resolve(build_hugging_face(llama(), "layers=1,sequence=5"));
    std::vector<std::string> names;
    for (int l = 0; l < model.layer_count(); ++l) {
      const ResolvedLayer& resolved = model.layers[static_cast<std::size_t>(l)];
      for (std::size_t i = 0; i < resolved.parameters.size(); ++i) names.push_back(parameter_name(model, l, i));
    }
    CHECK((names == std::vector<std::string>{
                        "model.embed_tokens.weight", "model.layers.0.input_layernorm.weight",
                        "model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.k_proj.weight",
                        "model.layers.0.self_attn.v_proj.weight", "model.layers.0.self_attn.o_proj.weight",
                        "model.layers.0.post_attention_layernorm.weight", "model.layers.0.mlp.gate_proj.weight",
                        "model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.down_proj.weight",
                        "model.norm.weight", "lm_head.weight"}));
    CHECK(model.graph.name == "llama:layers=1,sequence=5");
    CHECK((model.graph.inputs.front().type.shape == Shape{5}));
  }

  TEST_CASE("arguments choose blocks and positions") {
    const ModelGraph graph = build_hugging_face(llama());
    CHECK((graph.inputs.front().type.shape == Shape{64}));
    CHECK(graph.name == "llama");
    const Json longer = changed(llama(), {{"max_position_embeddings", 131072}});
    CHECK((build_hugging_face(longer).inputs.front().type.shape == Shape{131072}));
    CHECK((build_hugging_face(longer, "sequence=4096").inputs.front().type.shape == Shape{4096}));
    CHECK(build_hugging_face(llama(), "layers=2").layers.size() < graph.layers.size());
    CHECK(refusal(llama(), "layers=4") == "[usage] layers=4 is above num_hidden_layers, 3");
    CHECK(refusal(llama(), "layers=0") == "[usage] layers=0 is out of range; use an integer from 1 to 2048");
    CHECK(refusal(llama(), "width=4") ==
          "[usage] unknown argument \"width\"; use layers=N, sequence=N and mtp=N");
    CHECK(refusal(llama(), "layers=1,layers=1") == "[usage] argument \"layers\" appears twice; give it once");
  }

  TEST_CASE("a built-in family is its config.json") {
    const Json config = changed(llama(), {{"head_dim", 6}, {"rope_theta", 100.0}, {"rms_norm_eps", 1e-5}});
    ModelGraph built = model::build_family(
        "llama:layers=3,width=8,heads=4,kv_heads=2,head_width=6,hidden=12,vocabulary=19,sequence=64,rope_base="
        "100");
    built.name = "llama";
    CHECK((built == build_hugging_face(config)));
  }

  TEST_CASE("a model that is no language model is refused, whatever its type") {
    for (const char* name : {"LlamaForCausalLM", "GPT2LMHeadModel"})
      CHECK(refusal(changed(llama(), {{"architectures", {name}}})) == "no error");
    CHECK(refusal(changed(llama(), {{"architectures", nullptr}})) == "no error");
    CHECK(refusal(changed(llama(), {{"architectures", {"LlamaForSequenceClassification"}}})) ==
          "[data] /architectures: \"LlamaForSequenceClassification\" is no language model, and only these are "
          "built; "
          "bring the module in by scripts/import-torch, or leave the key out to train a language model of this "
          "shape");
    for (const char* name :
         {"MistralModel", "LlamaForTokenClassification", "GPT2DoubleHeadsModel", "Qwen2RewardModel"})
      CHECK(refusal(changed(llama(), {{"architectures", {name}}}))
                .starts_with("[data] /architectures: \"" + std::string(name)));
  }

  TEST_CASE("weights start as widely as the configuration says") {
    const auto spread = [](const Json& config, const char* name) {
      return number(layer(build_hugging_face(config), name).attributes, "std");
    };
    CHECK(spread(llama(), "model.embed_tokens") == 0.02);
    const Json wide = changed(llama(), {{"initializer_range", 0.1}});
    CHECK(spread(wide, "model.embed_tokens") == 0.1);
    CHECK(spread(wide, "lm_head") == 0.1);
    CHECK(refusal(changed(llama(), {{"initializer_range", 0}})).starts_with("[data] /initializer_range: "));
    // GPT-2: what is added to the residual starts at 0.02 / sqrt(2 layers).
    const Json gpt2{{"model_type", "gpt2"}, {"vocab_size", 19}, {"n_embd", 8},
                    {"n_layer", 8},         {"n_head", 2},      {"n_positions", 6}};
    CHECK(spread(gpt2, "transformer.h.7.mlp.up_proj") == 0.02);
    CHECK(spread(gpt2, "transformer.h.7.mlp.down_proj") == 0.005);
    CHECK(refusal(gpt2, "sequence=7") == "[usage] sequence=7 is above n_positions, 6, the rows of its table");
    CHECK(refusal(changed(gpt2, {{"scale_attn_by_inverse_layer_idx", true}})) ==
          "[data] /scale_attn_by_inverse_layer_idx: must be false; gpt2 is built only so");
  }

  TEST_CASE("rotary positions: theta, its scalings, parts of a head, in both generations of keys") {
    CHECK(rotary(build_hugging_face(changed(llama(), {{"rope_theta", 500}})), "rotary_base") == 500);
    const Json yarn{{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 16}};
    const ModelGraph stretched = build_hugging_face(changed(llama(), {{"rope_scaling", yarn}}));
    CHECK(rotary(stretched, "rotary_magnitude") == doctest::Approx(0.1 * std::log(4.0) + 1));
    CHECK(rotary(stretched, "rotary_factor") == 4);
    Json now = yarn;
    now["rope_theta"] = 500;
    const ModelGraph again = build_hugging_face(changed(llama(), {{"rope_parameters", now}}));
    CHECK(rotary(again, "rotary_base") == 500);
    Json magnitudes = yarn;
    magnitudes["mscale"] = 2.0;
    magnitudes["mscale_all_dim"] = 0.5;
    CHECK(rotary(build_hugging_face(changed(llama(), {{"rope_scaling", magnitudes}})), "rotary_magnitude") ==
          doctest::Approx((0.2 * std::log(4.0) + 1) / (0.05 * std::log(4.0) + 1)));
    CHECK(refusal(changed(llama(), {{"rope_scaling", yarn}, {"rope_parameters", yarn}})) ==
          "[data] /rope_scaling: stands beside rope_parameters; give one of them");
    CHECK(refusal(changed(llama(), {{"rope_scaling", {{"rope_type", "dynamic"}, {"factor", 2.0}}}})) ==
          "[data] /rope_scaling: the scaling \"dynamic\" of llama is not built: it follows the length of each "
          "sequence");
    CHECK(refusal(changed(llama(), {{"rope_scaling", {{"rope_type", "linear"}}}}))
              .starts_with("[data] /rope_scaling/factor: missing; add this key"));
    CHECK(refusal(changed(llama(), {{"partial_rotary_factor", 0.5}})) ==
          "[data] /partial_rotary_factor: must be 1: llama turns whole heads");
  }

  TEST_CASE("windows by block") {
    const auto window = [](const ModelGraph& graph, int block) {
      return integer(layer(graph, "model.layers." + std::to_string(block) + ".self_attn").attributes,
                     "sliding_window");
    };
    Json config = changed(llama(), {{"model_type", "mistral"}});
    CHECK(window(build_hugging_face(config), 2) == 4096);
    CHECK(window(build_hugging_face(changed(config, {{"sliding_window", nullptr}})), 2) == 0);
    config["model_type"] = "qwen2";
    CHECK(window(build_hugging_face(changed(config, {{"sliding_window", 7}})), 2) == 0);
    config = changed(config, {{"sliding_window", 7}, {"use_sliding_window", true}, {"max_window_layers", 2}});
    CHECK(window(build_hugging_face(config), 1) == 0);
    CHECK(window(build_hugging_face(config), 2) == 7);
    config["layer_types"] = {"sliding_attention", "full_attention", "full_attention"};
    CHECK(window(build_hugging_face(config), 0) == 7);
    CHECK(window(build_hugging_face(config), 2) == 0);
    config["layer_types"] = {"sliding_attention"};
    CHECK(refusal(config) == "[data] /layer_types: must have an entry for each of the 3 layers");
    config["layer_types"] = {"full_attention", "full_attention", "chunked_attention"};
    CHECK(refusal(config) ==
          "[data] /layer_types: \"chunked_attention\" is not built; use full_attention and sliding_attention");
  }

  TEST_CASE("the padding token's embedding gets no gradient, where transformers gives it none") {
    const auto padding = [](const Json& config, const char* embedding) {
      return integer(layer(build_hugging_face(config), embedding).attributes, "padding_idx");
    };
    CHECK(padding(llama(), "model.embed_tokens") == -1);
    CHECK(padding(changed(llama(), {{"pad_token_id", 3}}), "model.embed_tokens") == 3);
    CHECK(padding(changed(llama(), {{"pad_token_id", -1}}), "model.embed_tokens") == 18);
    CHECK(padding(changed(llama(), {{"model_type", "gemma2"}}), "model.embed_tokens") == 0);
    CHECK(refusal(changed(llama(), {{"model_type", "phi3"}})) ==
          "[data] /pad_token_id: is missing, and 32000, which phi3 takes then, is not below vocab_size; give "
          "it, or "
          "null");
  }

  TEST_CASE("what changes the mathematics and is not built is refused by name") {
    CHECK(refusal(changed(llama(), {{"num_local_experts", 8}})) ==
          "[data] /num_local_experts: is of a mixture of experts, which llama is not; those of mixtral, "
          "qwen2_moe, "
          "qwen3_moe, deepseek_v2, deepseek_v3, gpt_oss, glm4_moe are read");
    CHECK(refusal(changed(llama(), {{"model_type", "llama4_text"}, {"num_local_experts", 16}})) ==
          "[data] /model_type: \"llama4_text\" is not built: its layers are another mixture of experts than "
          "those "
          "of mixtral, qwen2_moe, qwen3_moe, deepseek_v2, deepseek_v3, gpt_oss, glm4_moe, which are read");
    CHECK(refusal(changed(llama(), {{"model_type", "bert"}}))
              .starts_with("[data] /model_type: \"bert\" is not built; use one of llama, mistral, qwen2, "
                           "qwen3, gemma2, phi3, gpt_neox, "
                           "opt, gpt2, smollm3, mixtral, qwen2_moe, qwen3_moe, deepseek_v2, deepseek_v3, "
                           "gpt_oss, glm4_moe, or bring"));
    CHECK(refusal(changed(llama(), {{"attn_temperature", 2}})) ==
          "[data] /attn_temperature: is not a key that llama is built by; remove it if it changes nothing of "
          "what the "
          "model computes, else bring the module in by scripts/import-torch");
    CHECK(refusal(changed(llama(), {{"hidden_act", "quick_gelu"}})) ==
          "[data] /hidden_act: the activation \"quick_gelu\" is not built; use one of gelu, "
          "gelu_accurate, gelu_fast, gelu_new, gelu_python, gelu_python_tanh, gelu_pytorch_tanh, relu, silu, "
          "swish");
    CHECK(refusal(changed(llama(), {{"quantization_config", Json::object()}}))
              .starts_with("[data] /quantization_config: quantized weights are not read"));
    CHECK(refusal(changed(llama(), {{"unknown", nullptr}})) == "no error");
  }

  TEST_CASE("mixtures of experts have as many parameters as transformers counts, and the published totals") {
    const auto parameters = [](const Json& config, const std::string& more = "") {
      return parameter_count(resolve(build_hugging_face(config, "sequence=128" + more)));
    };
    const Json mixtral = parse_json(R"({"model_type": "mixtral", "vocab_size": 32000, "hidden_size": 4096,
      "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
      "max_position_embeddings": 32768, "num_local_experts": 8, "num_experts_per_tok": 2, "router_aux_loss_coef": 0.02,
      "output_router_logits": false, "sliding_window": null, "rope_theta": 1000000.0})");
    CHECK(parameters(mixtral) == 46'702'792'704);
    Json qwen2 = parse_json(R"({"model_type": "qwen2_moe", "vocab_size": 151936, "hidden_size": 2048,
      "intermediate_size": 5632, "num_hidden_layers": 24, "num_attention_heads": 16, "num_key_value_heads": 16,
      "max_position_embeddings": 8192, "num_experts": 60, "num_experts_per_tok": 4, "moe_intermediate_size": 1408,
      "shared_expert_intermediate_size": 5632, "decoder_sparse_step": 1, "mlp_only_layers": []})");
    CHECK(parameters(qwen2) == 14'315'784'192);
    // Every second block but the fourth is dense.
    qwen2 = changed(qwen2, {{"num_hidden_layers", 4}, {"decoder_sparse_step", 2}, {"mlp_only_layers", {3}}});
    const ModelGraph sparse = build_hugging_face(qwen2);
    CHECK(std::ranges::count(sparse.layers, kExpertsOp, &Layer::op) == 1);
    CHECK(layer(sparse, "model.layers.1.mlp").op == kExpertsOp);
    const auto names = [](const Json& config) {
      const ResolvedModel model = resolve(build_hugging_face(config, "layers=2,sequence=128"));
      std::vector<std::string> all;
      for (int l = 0; l < model.layer_count(); ++l) {
        for (std::size_t i = 0; i < model.layers[static_cast<std::size_t>(l)].parameters.size(); ++i)
          all.push_back(parameter_name(model, l, i));
      }
      return std::set(all.begin(), all.end());
    };
    for (const char* name : {"gate", "experts.7.w1", "experts.7.w3", "experts.0.w2"})
      CHECK(names(mixtral).contains("model.layers.1.block_sparse_moe." + std::string(name) + ".weight"));
    for (const char* name : {"gate", "experts.59.gate_proj", "experts.0.up_proj", "experts.3.down_proj",
                             "shared_expert.up_proj", "shared_expert_gate"})
      CHECK(names(qwen2).contains("model.layers.1.mlp." + std::string(name) + ".weight"));
    const Json qwen3 = parse_json(R"({"model_type": "qwen3_moe", "vocab_size": 151936, "hidden_size": 2048,
      "intermediate_size": 6144, "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4,
      "head_dim": 128, "max_position_embeddings": 40960, "num_experts": 128, "num_experts_per_tok": 8,
      "moe_intermediate_size": 768, "decoder_sparse_step": 1, "mlp_only_layers": [], "norm_topk_prob": true})");
    CHECK(parameters(qwen3) == 30'532'122'624);
    CHECK(parameters(changed(qwen3, {{"hidden_size", 4096},
                                     {"num_hidden_layers", 94},
                                     {"num_attention_heads", 64},
                                     {"moe_intermediate_size", 1536}})) == 235'093'634'560);
    const Json v3 = parse_json(R"({"model_type": "deepseek_v3", "vocab_size": 129280, "hidden_size": 7168,
      "intermediate_size": 18432, "moe_intermediate_size": 2048, "num_hidden_layers": 61, "num_attention_heads": 128,
      "num_key_value_heads": 128, "n_shared_experts": 1, "n_routed_experts": 256, "routed_scaling_factor": 2.5,
      "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64, "v_head_dim": 128, "qk_nope_head_dim": 128,
      "n_group": 8, "topk_group": 4, "num_experts_per_tok": 8, "first_k_dense_replace": 3, "moe_layer_freq": 1,
      "scoring_func": "sigmoid", "topk_method": "noaux_tc", "norm_topk_prob": true, "num_nextn_predict_layers": 1,
      "max_position_embeddings": 163840, "rope_scaling": {"type": "yarn", "factor": 40, "beta_fast": 32,
      "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096},
      "quantization_config": {"quant_method": "fp8"}})");
    // Published are 671,026,419,200: with 256 corrections of scores in each of 58 blocks, which are buffers.
    CHECK(parameters(v3) == 671'026'419'200 - 58 * 256);
    // The published files hold 684,531,386,000 numbers: with a second copy of the head for the block that
    // predicts a token more, with its corrections, and with 41,540,496 scales of FP8.
    CHECK(parameters(v3, ",mtp=1") == 684'531'386'000 - 41'540'496 - 129280LL * 7168 - 59 * 256);
    const ResolvedModel resolved = resolve(build_hugging_face(v3, "layers=4,sequence=128"));
    const auto mixture = std::ranges::find(resolved.graph.layers, kExpertsOp, &Layer::op);
    CHECK(mixture->name == "model.layers.3.mlp");
    const ResolvedLayer& fourth =
        resolved.layers[static_cast<std::size_t>(mixture - resolved.graph.layers.begin())];
    CHECK((fourth.buffers.front().shape == Shape{256}));
    // 8 of 256 experts count: per token 2 7168 256 of the router, 6 7168 2048 each, and their elementwise work.
    CHECK(fourth.forward_flops.value ==
          128 * (256 * (2.0 * 7168 + 5) + 8 * (2048 * (6.0 * 7168 + 6) + 2.0 * 7168)));
    const Json lite = parse_json(R"({"model_type": "deepseek_v2", "vocab_size": 102400, "hidden_size": 2048,
      "intermediate_size": 10944, "moe_intermediate_size": 1408, "num_hidden_layers": 27, "num_attention_heads": 16,
      "num_key_value_heads": 16, "n_shared_experts": 2, "n_routed_experts": 64, "kv_lora_rank": 512,
      "q_lora_rank": null, "qk_rope_head_dim": 64, "v_head_dim": 128, "qk_nope_head_dim": 128,
      "num_experts_per_tok": 6, "first_k_dense_replace": 1, "max_position_embeddings": 163840})");
    CHECK(parameters(lite) == 15'706'484'224);
    const Json oss = parse_json(R"({"model_type": "gpt_oss", "vocab_size": 201088, "hidden_size": 2880,
      "intermediate_size": 2880, "num_hidden_layers": 36, "num_attention_heads": 64, "num_key_value_heads": 8,
      "head_dim": 64, "max_position_embeddings": 131072, "num_local_experts": 128, "num_experts_per_tok": 4,
      "sliding_window": 128, "swiglu_limit": 7.0})");
    CHECK(parameters(oss) == 116'829'156'672);
    for (const char* name :
         {"mlp.router.bias", "mlp.experts.gate_up_proj", "mlp.experts.down_proj_bias", "self_attn.sinks"})
      CHECK(names(oss).contains("model.layers.1." + std::string(name)));
    const ModelGraph silent = build_hugging_face(oss, "layers=2,sequence=128");
    CHECK(layer(silent, "model.layers.0.self_attn").attributes.at("rotary_factor") == Attribute(32.0));
    CHECK(layer(silent, "model.layers.0.self_attn").attributes.at("sinks_std") == Attribute(0.02));
    const Json glm = parse_json(R"({"model_type": "glm4_moe", "vocab_size": 151552, "hidden_size": 5120,
      "intermediate_size": 12288, "moe_intermediate_size": 1536, "num_hidden_layers": 92, "num_attention_heads": 96,
      "num_key_value_heads": 8, "head_dim": 128, "n_shared_experts": 1, "n_routed_experts": 160,
      "num_experts_per_tok": 8, "first_k_dense_replace": 3, "use_qk_norm": true, "attention_bias": true,
      "partial_rotary_factor": 0.5, "max_position_embeddings": 131072})");
    CHECK(parameters(glm) == 352'797'814'784);
    CHECK(
        refusal(changed(mixtral, {{"output_router_logits", true}})) ==
        "[data] /output_router_logits: adds a loss that balances the experts of all layers over all positions "
        "of a mini-batch, which no micro-batch and no stage has together; set it to false" +
            std::string(kLimits));
    CHECK(refusal(changed(mixtral, {{"output_router_logits", true}, {"router_aux_loss_coef", 0}})) ==
          "no error");
    CHECK(refusal(changed(mixtral, {{"router_jitter_noise", 0.1}})) ==
          "[data] /router_jitter_noise: noise in front of routers is not built; set it to 0");
    CHECK(refusal(changed(mixtral, {{"num_local_experts", 1025}})) ==
          "[data] /num_local_experts: must be an integer from 1 to 1024, not 1025");
    CHECK(refusal(changed(v3, {{"topk_group", 1}, {"num_experts_per_tok", 33}}), "sequence=8")
              .ends_with("experts_per_token 33 must be at most the experts of groups_per_token groups, 32"));
    CHECK(refusal(changed(v3, {{"n_group", 7}}), "sequence=8")
              .ends_with("groups 7 must divide num_experts, 256"));
    CHECK(refusal(changed(lite, {{"topk_method", "noaux_tc"}})) ==
          "[data] /topk_method: \"noaux_tc\" is not built");
    CHECK(refusal(changed(v3, {{"scoring_func", "softmax"}})) ==
          "[data] /scoring_func: is another than that of deepseek_v3");
    CHECK(refusal(changed(v3, {{"moe_layer_freq", 2}})) ==
          "[data] /moe_layer_freq: must be 1; deepseek_v3 is built only so");
  }

  TEST_CASE("mtp=1 adds the block that predicts a token more, with the model's head") {
    const Json config = parse_json(R"({"model_type": "deepseek_v3", "vocab_size": 40, "hidden_size": 16,
      "intermediate_size": 24, "moe_intermediate_size": 8, "num_hidden_layers": 4, "num_attention_heads": 2,
      "num_key_value_heads": 2, "n_shared_experts": 1, "n_routed_experts": 8, "kv_lora_rank": 4, "q_lora_rank": 6,
      "qk_rope_head_dim": 4, "v_head_dim": 8, "qk_nope_head_dim": 8, "n_group": 4, "topk_group": 2,
      "num_experts_per_tok": 2, "first_k_dense_replace": 3, "num_nextn_predict_layers": 1,
      "max_position_embeddings": 12})");
    const ModelGraph main = build_hugging_face(config, "layers=2"),
                     both = build_hugging_face(config, "layers=2,mtp=1");
    CHECK(both.name == "deepseek_v3:layers=2,mtp=1");
    const std::size_t blocks_and_norm = main.layers.size() - 1;
    CHECK(std::ranges::equal(std::span(main.layers).first(blocks_and_norm),
                             std::span(both.layers).first(blocks_and_norm)));
    // A mixture, as block 4 of the whole model is.
    CHECK(layer(both, "model.layers.2.mlp").op == kExpertsOp);
    CHECK((layer(both, "model.layers.2.embed_tokens").inputs == std::vector<std::string>{"tokens_1"}));
    CHECK((layer(both, "model.layers.2.hnorm").inputs == std::vector<std::string>{"model.norm"}));
    CHECK((layer(both, "lm_head").inputs == std::vector<std::string>{"predictions"}));
    CHECK((both.targets.front().type.shape == Shape{2 * 12}));
    const ResolvedModel model = resolve(both);
    CHECK(model.layers[static_cast<std::size_t>(&layer(both, "model.layers.2.eh_proj") - both.layers.data())]
              .parameters.front()
              .shape == Shape{16, 32});
    const std::vector<Block> blocks = prediction_blocks(both);
    REQUIRE(blocks.size() == 1);
    CHECK(both.layers[static_cast<std::size_t>(blocks[0].begin)].name == "model.layers.2.embed_tokens");
    CHECK(both.layers[static_cast<std::size_t>(blocks[0].end)].name == "predictions");
    CHECK(prediction_blocks(main).empty());
    CHECK(refusal(config, "mtp=2") == "[usage] mtp=2 is above num_nextn_predict_layers, 1");
    CHECK(refusal(llama(), "mtp=1") == "[usage] mtp=1 is above num_nextn_predict_layers, 0");
    CHECK(build_hugging_face(config, "layers=2,mtp=0").layers == main.layers);
  }

  TEST_CASE("no built-in family predicts further tokens") {
    for (const model::FamilyRow& row : model::family_table())
      CHECK_MESSAGE(prediction_blocks(model::build_family(row.name)).empty(), row.name);
  }

  TEST_CASE("hostile configurations are refused with the place") {
    CHECK(refusal(changed(llama(), {{"num_hidden_layers", 200000}})) ==
          "[data] /num_hidden_layers: must be an integer from 1 to 2048, not 200000");
    CHECK(refusal(changed(llama(), {{"hidden_size", std::int64_t{1} << 40}})) ==
          "[data] /hidden_size: must be an integer from 1 to 1048576, not 1099511627776");
    CHECK(refusal(changed(llama(), {{"hidden_size", -8}})) ==
          "[data] /hidden_size: must be an integer from 1 to 1048576, not -8");
    CHECK(refusal(changed(llama(), {{"hidden_size", "8"}})).starts_with("[data] /hidden_size: "));
    CHECK(refusal(changed(llama(),
                          {{"num_attention_heads", 1 << 20}, {"num_key_value_heads", 1}, {"head_dim", 512}})) ==
          "[data] /num_attention_heads: 1048576 heads of 512 make projections wider than 1048576");
    CHECK(refusal(changed(llama(), {{"num_key_value_heads", 3}})) ==
          "[data] /num_key_value_heads: 3 must divide num_attention_heads, 4");
    CHECK(refusal(changed(llama(), {{"head_dim", 3}})) ==
          "[data] /head_dim: heads of 3 elements have no pairs to turn; give an even width");
    CHECK(refusal(changed(llama(), {{"rope_scaling", "yarn"}})).starts_with("[data] /rope_scaling: "));
    CHECK(refusal(changed(llama(), {{"rms_norm_eps", "small"}})).starts_with("[data] /rms_norm_eps: "));
    CHECK(refusal(changed(llama(), {{"attention_dropout", 1.5}})).starts_with("[data] /attention_dropout: "));
    CHECK(refusal(changed(llama(), {{"model_type", 7}})) == "[data] /model_type: must be a string");
    Json missing = llama();
    missing.erase("hidden_size");
    CHECK(refusal(missing).starts_with("[data] /hidden_size: missing"));
    const std::string deep = std::string(100000, '[') + std::string(100000, ']');
    CHECK(test::error_text([&] {
            return parse_json(R"({"model_type": "llama", "a": )" + deep + "}");
          }).starts_with("[data] "));
  }

  TEST_CASE("documents of both kinds are told apart") {
    CHECK(model::is_hugging_face_config(llama()));
    CHECK_FALSE(model::is_hugging_face_config(to_json(build_hugging_face(llama()))));
    CHECK_FALSE(model::is_hugging_face_config(Json::array()));
  }
}

}  // namespace hugging_face_test
