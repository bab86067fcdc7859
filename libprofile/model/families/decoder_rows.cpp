// What each family of decoders is: a paper, the tensors as they are published, and its keys.
#include "libprofile/model/families/decoder_rows.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "libprofile/core/error.h"

namespace pp::model {
namespace {

using namespace std::string_view_literals;

constexpr NumberRange kDropout{0, 0.99};

void pass_over(ConfigReader& config, std::initializer_list<std::string_view> keys) {
  config.pass_over({keys.begin(), keys.size()});
}

void with_query_bias(Decoder& decoder) { decoder.query_bias = true; }
void with_norms(Decoder& decoder) { decoder.attention.emplace("norms", true); }

// Gemma team, Gemma 2: improving open language models at a practical size, 2024.
void as_gemma2(Decoder& decoder) {
  decoder.norms = NormPlace::around;
  decoder.norm_offset = 1;
  decoder.activation = "gelu_tanh";
  decoder.names.post_norm1 = "post_attention_layernorm";
  decoder.names.norm2 = "pre_feedforward_layernorm";
  decoder.names.post_norm2 = "post_feedforward_layernorm";
}
void read_gemma2(ConfigReader& config, Decoder& decoder) {
  constexpr NumberRange kCaps{1e-6, 1e6};
  const auto cap_of = [&](std::string_view key, double usual) {
    return config.number_or(key, config.mentioned(key) ? 0 : usual, kCaps);
  };
  decoder.embedding_scale = std::sqrt(static_cast<double>(decoder.width));
  decoder.attention.emplace("scale",
                            1 / std::sqrt(config.number_or("query_pre_attn_scalar", 256, {1e-6, 1e9})));
  if (const double cap = cap_of("attn_logit_softcapping", 50); cap > 0)
    decoder.attention.emplace("soft_cap", cap);
  decoder.logit_cap = cap_of("final_logit_softcapping", 30);
  config.require("use_bidirectional_attention", false);
  pass_over(config, {"hidden_act", "sliding_window_size"});
}

// Abdin et al., Phi-3 technical report, 2024.
void as_phi3(Decoder& decoder) {
  decoder.packed = true;
  decoder.names.packed = "qkv_proj";
  decoder.names.gate = "mlp.gate_up_proj";
}
void read_phi3(ConfigReader& config, Decoder& decoder) {
  decoder.residual_dropout = config.number_or("resid_pdrop", 0, kDropout);
  pass_over(config, {"embd_pdrop", "original_max_position_embeddings"});
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
void read_gpt_neox(ConfigReader& config, Decoder& decoder) {
  decoder.parallel = config.boolean_or("use_parallel_residual", true);
  decoder.residual_dropout = decoder.embedding_dropout = config.number_or("hidden_dropout", 0, kDropout);
  pass_over(config, {"attention_probs_dropout_prob", "hidden_dropout_prob"});
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
void read_opt(ConfigReader& config, Decoder& decoder) {
  const std::int64_t embedding = config.integer_or("word_embed_proj_dim", decoder.width, {1, kMostWidth});
  if (embedding != decoder.width) decoder.embedding_width = embedding;
  const bool before = config.boolean_or("do_layer_norm_before", true);
  if (!before) decoder.norms = NormPlace::after;
  const bool removed = config.boolean_or("_remove_final_layer_norm", false);
  decoder.last_norm = before && !removed;
  decoder.residual_dropout = config.number_or("dropout", 0.1, kDropout);
  if (config.number_or("layerdrop", 0, {0, 1}) > 0)
    config.fail("layerdrop", "layers that are left out at random are not built; set it to 0");
  config.require("layer_norm_elementwise_affine", true);
  pass_over(config, {"activation_dropout"});
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
void read_gpt2(ConfigReader& config, Decoder& decoder) {
  decoder.residual_dropout = config.number_or("resid_pdrop", 0.1, kDropout);
  decoder.embedding_dropout = config.number_or("embd_pdrop", 0.1, kDropout);
  config.require("scale_attn_weights", true);
  config.require("scale_attn_by_inverse_layer_idx", false);
  config.require("reorder_and_upcast_attn", false);
  pass_over(config, {"n_ctx", "summary_type", "summary_use_proj", "summary_activation",
                     "summary_proj_to_labels", "summary_proj_to_logits", "summary_first_dropout"});
}

void as_qwen2_moe(Decoder& decoder) {
  decoder.query_bias = true;
  decoder.names.shared = "mlp.shared_expert";
  decoder.names.shared_gate = "mlp.shared_expert_gate";
}
void as_mixtral(Decoder& decoder) { decoder.names.experts = "block_sparse_moe"; }
void as_gpt_oss(Decoder& decoder) { decoder.attention.emplace("sinks", true); }
void read_glm4_moe(ConfigReader& config, Decoder& decoder) {
  if (config.boolean_or("use_qk_norm", false)) decoder.attention.emplace("norms", true);
}

void read_latent(ConfigReader& config, Decoder& decoder, bool interleaved) {
  constexpr IntegerRange kWidths{1, kMostWidth};
  LatentAttention& latent = decoder.latent;
  latent = {.queries = config.integer_or("q_lora_rank", 0, kWidths),
            .keys = config.integer("kv_lora_rank", kWidths),
            .rotated = config.integer("qk_rope_head_dim", kWidths),
            .straight = config.integer("qk_nope_head_dim", kWidths),
            .values = config.integer("v_head_dim", kWidths)};
  if (decoder.heads > kMostWidth / (latent.rotated + latent.straight + latent.values))
    config.fail("num_attention_heads", std::to_string(decoder.heads) + " heads make projections wider than " +
                                           std::to_string(kMostWidth));
  config.require("mlp_bias", false);
  decoder.head_width = latent.rotated;
  decoder.attention.emplace("rotary_interleaved", config.boolean_or("rope_interleave", true) || interleaved);
}
void read_deepseek_v2(ConfigReader& config, Decoder& decoder) {
  read_latent(config, decoder, /*interleaved=*/true);
  config.require("norm_topk_prob", false);
}
void read_deepseek_v3(ConfigReader& config, Decoder& decoder) { read_latent(config, decoder, false); }

constexpr BiasKey kAttentionBias{"attention_bias", false, /*query=*/true,
                                 /*out=*/true};
constexpr BiasKey kNoAttentionBias{"attention_bias"};
constexpr BiasKey kMlpBias{"mlp_bias", false, false, false, /*up=*/true};
constexpr std::array kAttentionBiases{kAttentionBias};
constexpr std::array kAllBiases{kAttentionBias, kMlpBias};
constexpr std::array kNoBiases{kNoAttentionBias};
constexpr std::array kNeoxBiases{BiasKey{"attention_bias", true, true, true}};
constexpr std::array kOptBiases{BiasKey{"enable_bias", true, true, true, true}};
constexpr std::array kQkvBiases{BiasKey{"qkv_bias", true, true}};
constexpr std::array kGlmBiases{BiasKey{"attention_bias", false, true}};

// Jiang et al., Mixtral of experts, 2024; DeepSeek-AI, DeepSeek-V3 technical report, 2024; OpenAI, gpt-oss
// model card, 2025; GLM-4.5 team, 2025.
constexpr ExpertsRow kMixtral{.whole = true, .tensors = "w1"},
    kQwen2Moe{.shared_hidden = "shared_expert_intermediate_size"}, kQwen3Moe{},
    kDeepseek2{.dense_first = true, .shared = 2, .limits_groups = true},
    kDeepseek3{.dense_first = true, .dense = 3, .sigmoid = true, .factor = 2.5, .groups = 8, .open_groups = 4},
    kGptOss{.whole = true, .clamped = true}, kGlm4{.dense_first = true, .dense = 1, .sigmoid = true};

// Touvron et al., LLaMA: open and efficient foundation language models, 2023, and its successors; Jiang et al.,
// Mistral 7B, 2023; Yang et al., Qwen2 technical report, 2024, and Qwen3 technical report, 2025; Allal et al.,
// SmolLM2, 2025, and its successor, some of whose blocks have no positions.
// clang-format off
constexpr std::array kRows{
    DecoderRow{.type = "llama", .biases = kAllBiases},
    DecoderRow{.type = "mistral", .biases = kNoBiases, .windows = Windows::all, .groups = 8, .window = 4096},
    DecoderRow{.type = "qwen2", .shape = with_query_bias, .windows = Windows::behind, .groups = 32, .window = 4096},
    DecoderRow{.type = "qwen3", .shape = with_norms, .biases = kAttentionBiases, .windows = Windows::behind,
               .groups = 32, .head_width = 128, .window = 4096},
    DecoderRow{.type = "gemma2", .shape = as_gemma2, .read = read_gemma2, .keys = {.activation = "hidden_activation"},
               .biases = kAttentionBiases, .windows = Windows::alternate, .activation = "gelu_pytorch_tanh",
               .tied = true, .padding = 0, .groups = 4, .head_width = 256, .window = 4096},
    DecoderRow{.type = "phi3", .shape = as_phi3, .read = read_phi3, .biases = kNoBiases, .windows = Windows::all,
               .divides = true, .partial = true, .scaled = false, .padding = 32000, .eps = 1e-5},
    DecoderRow{.type = "gpt_neox", .shape = as_gpt_neox, .read = read_gpt_neox,
               .keys = {.eps = "layer_norm_eps", .rope_base = "rotary_emb_base", .rope_share = "rotary_pct"},
               .biases = kNeoxBiases, .activation = "gelu", .grouped = false, .partial = true, .pads = false,
               .rope_share = 0.25, .eps = 1e-5},
    DecoderRow{.type = "opt", .shape = as_opt, .read = read_opt,
               .keys = {.hidden = "ffn_dim", .activation = "activation_function", .std = "init_std"},
               .biases = kOptBiases, .activation = "relu", .grouped = false, .table = true, .tied = true,
               .padding = 1, .eps = 1e-5},
    DecoderRow{.type = "gpt2", .shape = as_gpt2, .read = read_gpt2,
               .keys = {.width = "n_embd", .hidden = "n_inner", .blocks = "n_layer", .heads = "n_head",
                        .positions = "n_positions", .eps = "layer_norm_epsilon",
                        .activation = "activation_function", .dropout = "attn_pdrop"},
               .activation = "gelu_new", .grouped = false, .table = true, .pads = false, .tied = true, .eps = 1e-5,
               .dropout = 0.1, .hidden_widths = 4},
    DecoderRow{.type = "smollm3", .biases = kAllBiases, .windows = Windows::unrotated, .skips_rope = true,
               .tied = true, .padding = 128004, .groups = 4, .rope_base = 2e6},
    DecoderRow{.type = "mixtral", .shape = as_mixtral, .experts = &kMixtral, .windows = Windows::all, .groups = 8,
               .rope_base = 1e6, .eps = 1e-5},
    DecoderRow{.type = "qwen2_moe", .shape = as_qwen2_moe, .biases = kQkvBiases, .experts = &kQwen2Moe,
               .windows = Windows::behind, .groups = 16, .window = 4096},
    DecoderRow{.type = "qwen3_moe", .shape = with_norms, .biases = kAttentionBiases, .experts = &kQwen3Moe,
               .windows = Windows::behind, .groups = 4, .window = 4096},
    DecoderRow{.type = "deepseek_v2", .read = read_deepseek_v2, .biases = kAttentionBiases, .experts = &kDeepseek2,
               .head_width = 64},
    DecoderRow{.type = "deepseek_v3", .read = read_deepseek_v3, .biases = kAttentionBiases, .experts = &kDeepseek3,
               .head_width = 64},
    DecoderRow{.type = "gpt_oss", .shape = as_gpt_oss, .biases = kNeoxBiases, .experts = &kGptOss,
               .windows = Windows::alternate, .groups = 8, .head_width = 64, .window = 128, .rope_base = 150000,
               .rope = R"({"rope_type": "yarn", "factor": 32, "original_max_position_embeddings": 4096,
                           "truncate": false})", .eps = 1e-5},
    DecoderRow{.type = "glm4_moe", .read = read_glm4_moe, .biases = kGlmBiases, .experts = &kGlm4, .partial = true,
               .groups = 8, .head_width = 128, .eps = 1e-5},
};
// clang-format on

}  // namespace

std::span<const DecoderRow> decoder_rows() { return kRows; }

const DecoderRow* find_decoder_row(std::string_view type) {
  const auto found = std::ranges::find(kRows, type, &DecoderRow::type);
  return found == kRows.end() ? nullptr : &*found;
}

std::string mixture_families() {
  std::string names;
  for (const DecoderRow& row : kRows)
    if (row.experts != nullptr) names.append(names.empty() ? "" : ", ").append(row.type);
  return names;
}

Decoder decoder_of_family(std::string_view family) {
  const DecoderRow* row = find_decoder_row(family == "smollm" ? "llama" : family);
  if (row == nullptr)
    throw Error(ErrorKind::internal, "no decoder family is named \"" + std::string(family) + "\"");
  Decoder decoder;
  if (row->shape != nullptr) row->shape(decoder);
  return decoder;
}

}  // namespace pp::model
