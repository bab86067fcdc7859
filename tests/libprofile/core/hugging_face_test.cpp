// config.json of Hugging Face: what is read, by which default, and what is refused.
#include "libprofile/model/families/hugging_face.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "libprofile/core/file.h"
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
    CHECK(refusal(llama(), "width=4") == "[usage] unknown argument \"width\"; use layers=N and sequence=N");
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
          "[data] /num_local_experts: mixtures of experts are not built: what sends tokens to experts, and the "
          "loss "
          "that balances them, are missing");
    CHECK(refusal(changed(llama(), {{"model_type", "mixtral"}})) ==
          "[data] /model_type: \"mixtral\" is not built: of mixtures of experts, what sends tokens to experts "
          "and the "
          "loss that balances them are missing");
    CHECK(refusal(changed(llama(), {{"model_type", "bert"}}))
              .starts_with("[data] /model_type: \"bert\" is not built; use one of llama, mistral, qwen2, "
                           "qwen3, gemma2, phi3, gpt_neox, "
                           "opt, gpt2, smollm3, or bring"));
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
