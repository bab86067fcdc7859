// Parameter counts of public configurations against those of the published tensors: the totals that Hugging
// Face shows for the repositories' safetensors files. The configurations are the repositories' config.json,
// less what changes no shape.
#include <nlohmann/json.hpp>
#include <string>

#include "libprofile/model/families/families.h"
#include "libprofile/model/families/hugging_face.h"
#include "tests/support/doctest.h"

namespace decoder_parameters_test {

using namespace pp;

namespace {

std::int64_t parameters(const std::string& config) {
  return parameter_count(resolve(model::build_hugging_face(parse_json(config))));
}

}  // namespace

TEST_SUITE("libprofile/model/decoder_parameters") {
  TEST_CASE("Llama") {
    // meta-llama/Llama-2-7b-hf
    CHECK(parameters(
              R"({"model_type": "llama", "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008,
      "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32, "max_position_embeddings": 4096,
      "rms_norm_eps": 1e-05, "rope_scaling": null})") == 6'738'415'616);
    // meta-llama/Llama-2-13b-hf
    CHECK(parameters(
              R"({"model_type": "llama", "vocab_size": 32000, "hidden_size": 5120, "intermediate_size": 13824,
      "num_hidden_layers": 40, "num_attention_heads": 40, "num_key_value_heads": 40, "max_position_embeddings": 4096,
      "rms_norm_eps": 1e-05})") == 13'015'864'320);
    // meta-llama/Llama-2-70b-hf
    CHECK(parameters(
              R"({"model_type": "llama", "vocab_size": 32000, "hidden_size": 8192, "intermediate_size": 28672,
      "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8, "max_position_embeddings": 4096,
      "rms_norm_eps": 1e-05})") == 68'976'648'192);
    // meta-llama/Meta-Llama-3-8B
    CHECK(parameters(
              R"({"model_type": "llama", "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336,
      "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 8192,
      "rope_theta": 500000.0})") == 8'030'261'248);
    // meta-llama/Meta-Llama-3-70B
    CHECK(parameters(
              R"({"model_type": "llama", "vocab_size": 128256, "hidden_size": 8192, "intermediate_size": 28672,
      "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8, "max_position_embeddings": 8192,
      "rope_theta": 500000.0})") == 70'553'706'496);
    // meta-llama/Llama-3.1-405B
    CHECK(parameters(
              R"({"model_type": "llama", "vocab_size": 128256, "hidden_size": 16384, "intermediate_size": 53248,
      "num_hidden_layers": 126, "num_attention_heads": 128, "num_key_value_heads": 8,
      "max_position_embeddings": 131072, "rope_theta": 500000.0, "rope_scaling": {"factor": 8.0,
      "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
      "rope_type": "llama3"}})") == 405'853'388'800);
  }

  TEST_CASE("GPT-2") {
    // openai-community/gpt2, all of its keys
    CHECK(parameters(
              R"({"activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
      "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02,
      "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12,
      "n_positions": 1024, "resid_pdrop": 0.1, "summary_activation": null, "summary_first_dropout": 0.1,
      "summary_proj_to_logits": true, "summary_type": "cls_index", "summary_use_proj": true,
      "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}},
      "vocab_size": 50257})") == 124'439'808);
  }

  TEST_CASE("its successors by others") {
    // mistralai/Mistral-7B-v0.1
    CHECK(parameters(
              R"({"model_type": "mistral", "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336,
      "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 32768,
      "sliding_window": 4096})") == 7'241'732'096);
    // Qwen/Qwen2-7B
    CHECK(parameters(
              R"({"model_type": "qwen2", "vocab_size": 152064, "hidden_size": 3584, "intermediate_size": 18944,
      "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4, "max_position_embeddings": 131072,
      "use_sliding_window": false, "tie_word_embeddings": false})") == 7'615'616'512);
    // Qwen/Qwen3-32B
    CHECK(parameters(
              R"({"model_type": "qwen3", "vocab_size": 151936, "hidden_size": 5120, "intermediate_size": 25600,
      "num_hidden_layers": 64, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128,
      "max_position_embeddings": 40960, "attention_bias": false, "tie_word_embeddings": false})") ==
          32'762'123'264);
    // google/gemma-2-9b
    CHECK(parameters(
              R"({"model_type": "gemma2", "vocab_size": 256000, "hidden_size": 3584, "intermediate_size": 14336,
      "num_hidden_layers": 42, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 256,
      "hidden_act": "gelu_pytorch_tanh", "max_position_embeddings": 8192, "query_pre_attn_scalar": 256,
      "sliding_window": 4096, "sliding_window_size": 4096, "cache_implementation": "hybrid"})") ==
          9'241'705'984);
    // microsoft/Phi-3-mini-4k-instruct
    CHECK(parameters(
              R"({"model_type": "phi3", "vocab_size": 32064, "hidden_size": 3072, "intermediate_size": 8192,
      "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32, "max_position_embeddings": 4096,
      "original_max_position_embeddings": 4096, "sliding_window": 2047, "embd_pdrop": 0.0,
      "resid_pdrop": 0.0})") == 3'821'079'552);
    // HuggingFaceTB/SmolLM2-135M
    CHECK(parameters(
              R"({"model_type": "llama", "vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536,
      "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3, "max_position_embeddings": 8192,
      "rope_theta": 100000, "rope_interleaved": false, "is_llama_config": true,
      "tie_word_embeddings": true})") == 134'515'008);
  }

  TEST_CASE("decoders before Llama") {
    // EleutherAI/pythia-6.9b
    CHECK(parameters(R"({"model_type": "gpt_neox", "vocab_size": 50432, "hidden_size": 4096,
      "intermediate_size": 16384, "num_hidden_layers": 32, "num_attention_heads": 32, "max_position_embeddings": 2048,
      "rotary_pct": 0.25, "rotary_emb_base": 10000, "use_parallel_residual": true,
      "tie_word_embeddings": false})") == 6'857'302'016);
    // facebook/opt-30b
    CHECK(parameters(R"({"model_type": "opt", "vocab_size": 50272, "hidden_size": 7168, "ffn_dim": 28672,
      "num_hidden_layers": 48, "num_attention_heads": 56, "max_position_embeddings": 2048,
      "word_embed_proj_dim": 7168, "do_layer_norm_before": true, "prefix": "</s>",
      "activation_dropout": 0.0})") == 29'974'540'288);
  }

  TEST_CASE("the built-in families have the sizes that they say") {
    const auto built = [](std::string_view family) {
      return parameter_count(resolve(model::build_family(family)));
    };
    CHECK(built("llama") == 8'030'261'248);
    CHECK(built("mistral") == 7'241'732'096);
    CHECK(built("qwen2") == 7'615'616'512);
    CHECK(built("qwen3") == 8'190'735'360);  // Qwen/Qwen3-8B
    CHECK(built("gemma2") == 9'241'705'984);
    CHECK(built("phi3") == 3'821'079'552);
    CHECK(built("gpt_neox") == 6'857'302'016);
    CHECK(built("opt") == 125'239'296);  // facebook/opt-125m
    CHECK(built("smollm") == 134'515'008);
  }
}

}  // namespace decoder_parameters_test
