// The decoders by family: what each is whatever its size (a paper, and the tensors as they are published), and
// the families of `pp-profile models` with a public configuration as defaults.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "libprofile/core/error.h"
#include "libprofile/model/families/decoder.h"

namespace pp::model {
namespace {

// Gemma team, Gemma 2: improving open language models at a practical size, 2024.
void as_gemma2(Decoder& decoder) {
  decoder.norms = NormPlace::around;
  decoder.norm_offset = 1;
  decoder.activation = "gelu_tanh";
  decoder.names.post_norm1 = "post_attention_layernorm";
  decoder.names.norm2 = "pre_feedforward_layernorm";
  decoder.names.post_norm2 = "post_feedforward_layernorm";
}

// Abdin et al., Phi-3 technical report, 2024.
void as_phi3(Decoder& decoder) {
  decoder.packed = true;
  decoder.names.packed = "qkv_proj";
  decoder.names.gate = "mlp.gate_up_proj";
}

// Black et al., GPT-NeoX-20B: an open-source autoregressive language model, 2022; Pythia has the same shape.
void as_gpt_neox(Decoder& decoder) {
  decoder.layer_norm = decoder.parallel = decoder.packed = true;
  decoder.gated = false;
  decoder.activation = "gelu";
  decoder.query_bias = decoder.out_bias = decoder.up_bias = true;
  decoder.attention.emplace("packing", "heads");
  decoder.names = {.embedding = "gpt_neox.embed_in",
                   .blocks = "gpt_neox.layers",
                   .attention = "attention",
                   .packed = "query_key_value",
                   .out = "dense",
                   .up = "mlp.dense_h_to_4h",
                   .down = "mlp.dense_4h_to_h",
                   .activation = "mlp.act",
                   .norm = "gpt_neox.final_layer_norm",
                   .head = "embed_out"};
}

// Zhang et al., OPT: open pre-trained transformer language models, 2022. Its table of positions begins with two
// rows that nothing reads.
void as_opt(Decoder& decoder) {
  decoder.layer_norm = true;
  decoder.gated = false;
  decoder.activation = "relu";
  decoder.query_bias = decoder.out_bias = decoder.up_bias = true;
  decoder.position_offset = 2;
  decoder.names = {.embedding = "model.decoder.embed_tokens",
                   .positions = "model.decoder.embed_positions",
                   .blocks = "model.decoder.layers",
                   .norm1 = "self_attn_layer_norm",
                   .norm2 = "final_layer_norm",
                   .out = "out_proj",
                   .up = "fc1",
                   .down = "fc2",
                   .activation = "activation_fn",
                   .norm = "model.decoder.final_layer_norm",
                   .head = "lm_head"};
}

// Radford et al., Language models are unsupervised multitask learners, 2019, as Hugging Face publishes it. Its
// matrices lie there transposed: ours have other names, so that no file of theirs is taken for one of ours.
void as_gpt2(Decoder& decoder) {
  decoder.layer_norm = decoder.packed = decoder.scaled_residuals = true;
  decoder.gated = false;
  decoder.activation = "gelu_tanh";
  decoder.query_bias = decoder.out_bias = decoder.up_bias = true;
  decoder.names = {.embedding = "transformer.wte",
                   .positions = "transformer.wpe",
                   .blocks = "transformer.h",
                   .norm1 = "ln_1",
                   .norm2 = "ln_2",
                   .attention = "attn",
                   .packed = "qkv_proj",
                   .out = "out_proj",
                   .up = "mlp.up_proj",
                   .down = "mlp.down_proj",
                   .activation = "mlp.act",
                   .norm = "transformer.ln_f",
                   .head = "lm_head"};
}

}  // namespace

Decoder decoder_of_family(std::string_view family) {
  Decoder decoder;
  // Touvron et al., LLaMA: open and efficient foundation language models, 2023, and its successors; Jiang et
  // al., Mistral 7B, 2023; Allal et al., SmolLM2, 2025, and its successor, some of whose blocks have no
  // positions.
  // Mixtures: Jiang et al., Mixtral of experts, 2024; DeepSeek-AI, DeepSeek-V3 technical report, 2024; OpenAI,
  // gpt-oss model card, 2025; GLM-4.5 team, 2025.
  constexpr std::array kPlain{"llama",       "mistral",     "smollm",  "smollm3",
                              "deepseek_v2", "deepseek_v3", "gpt_oss", "glm4_moe"};
  if (std::ranges::find(kPlain, family) != kPlain.end()) return decoder;
  if (family == "qwen2") {  // Yang et al., Qwen2 technical report, 2024
    decoder.query_bias = true;
  } else if (family == "qwen3" || family == "qwen3_moe") {  // Yang et al., Qwen3 technical report, 2025
    decoder.attention.emplace("norms", true);
  } else if (family == "qwen2_moe") {
    decoder.query_bias = true;
    decoder.names.shared = "mlp.shared_expert";
    decoder.names.shared_gate = "mlp.shared_expert_gate";
  } else if (family == "mixtral") {
    decoder.names.experts = "block_sparse_moe";
  } else if (family == "gemma2") {
    as_gemma2(decoder);
  } else if (family == "phi3") {
    as_phi3(decoder);
  } else if (family == "gpt_neox") {
    as_gpt_neox(decoder);
  } else if (family == "opt") {
    as_opt(decoder);
  } else if (family == "gpt2") {
    as_gpt2(decoder);
  } else {
    throw Error(ErrorKind::internal, "no decoder family is named \"" + std::string(family) + "\"");
  }
  return decoder;
}

namespace {

/// The row's arguments; those that only some families have are asked for by them alone.
Decoder sized(const Arguments& arguments) {
  Decoder decoder = decoder_of_family(arguments.family());
  decoder.vocabulary = arguments.whole("vocabulary");
  decoder.width = arguments.whole("width");
  decoder.hidden = arguments.whole("hidden");
  decoder.heads = arguments.whole("heads");
  decoder.sequence = arguments.whole("sequence");
  decoder.tied = arguments.whole("tied") == 1;
  decoder.blocks.resize(static_cast<std::size_t>(arguments.whole("layers")));
  return decoder;
}

}  // namespace

ModelGraph build_rotary_decoder(GraphBuilder builder, const Arguments& arguments) {
  Decoder decoder = sized(arguments);
  decoder.eps = arguments.number("eps");
  decoder.groups = arguments.whole("kv_heads");
  decoder.head_width = arguments.whole("head_width");
  decoder.attention.emplace("rotary_dim", decoder.head_width);
  decoder.attention.emplace("rotary_base", arguments.number("rope_base"));
  if (decoder.attention.contains("norms")) decoder.attention.emplace("norm_eps", decoder.eps);
  if (arguments.family() == "mistral") {
    for (DecoderBlock& block : decoder.blocks) block.window = arguments.whole("window");
  }
  if (arguments.family() == "gemma2") {
    for (std::size_t i = 0; i < decoder.blocks.size(); i += 2)
      decoder.blocks[i].window = arguments.whole("window");
    decoder.embedding_scale = std::sqrt(static_cast<double>(decoder.width));
    decoder.attention.emplace("soft_cap", 50.0);
    decoder.logit_cap = 30;
    decoder.padding = 0;
  }
  return build_decoder(std::move(builder), decoder);
}

ModelGraph build_gpt_neox(GraphBuilder builder, const Arguments& arguments) {
  require_heads(arguments);
  Decoder decoder = sized(arguments);
  decoder.eps = 1e-5;
  decoder.groups = decoder.heads;
  decoder.head_width = decoder.width / decoder.heads;
  decoder.attention.emplace("rotary_dim", decoder.head_width / 4 / 2 * 2);
  return build_decoder(std::move(builder), decoder);
}

ModelGraph build_opt(GraphBuilder builder, const Arguments& arguments) {
  require_heads(arguments);
  Decoder decoder = sized(arguments);
  decoder.eps = 1e-5;
  decoder.groups = decoder.heads;
  decoder.head_width = decoder.width / decoder.heads;
  decoder.position_rows = arguments.whole("positions") + decoder.position_offset;
  decoder.residual_dropout = arguments.number("dropout");
  decoder.padding = 1;
  if (decoder.sequence > arguments.whole("positions")) {
    throw Error(ErrorKind::usage, "opt: sequence=" + std::to_string(decoder.sequence) +
                                      " is above positions=" + std::to_string(arguments.whole("positions")) +
                                      ", the rows of its table; raise positions");
  }
  return build_decoder(std::move(builder), decoder);
}

}  // namespace pp::model
