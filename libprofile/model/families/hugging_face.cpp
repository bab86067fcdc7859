#include "libprofile/model/families/hugging_face.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "libprofile/core/error.h"
#include "libprofile/core/limits.h"
#include "libprofile/core/ops/op_table.h"
#include "libprofile/model/families/config_reader.h"
#include "libprofile/model/families/decoder.h"

namespace pp::model {
namespace {

using namespace std::string_view_literals;

constexpr std::int64_t kMostBlocks = 2048, kMostWidth = 1 << 20, kMostPositions = 1 << 20;

struct ConfigArguments {
  std::optional<std::int64_t> layers, sequence;
};

ConfigArguments parse_arguments(std::string_view text) {
  ConfigArguments found;
  const auto fail = [&](const std::string& message) { throw Error(ErrorKind::usage, message); };
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), item.size() + 1));
    const std::string name(item.substr(0, item.find('=')));
    if (name != "layers" && name != "sequence")
      fail("unknown argument \"" + name + "\"; use layers=N and sequence=N");
    std::optional<std::int64_t>& place = name == "layers" ? found.layers : found.sequence;
    if (place) fail("argument \"" + name + "\" appears twice; give it once");
    const std::string_view number = item.substr(std::min(item.size(), name.size() + 1));
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
    const std::int64_t most = name == "layers" ? kMostBlocks : kMostPositions;
    if (error != std::errc{} || end != number.data() + number.size() || value < 1 || value > most) {
      fail(name + "=" + std::string(number) + " is out of range; use an integer from 1 to " +
           std::to_string(most));
    }
    place = value;
  }
  return found;
}

/// transformers' names (its ACT2FN) and ours.
std::string activation_of(ConfigReader& config, std::string_view key, const std::string& otherwise) {
  static const std::map<std::string, std::string, std::less<>> kNames{{"silu", "silu"},
                                                                      {"swish", "silu"},
                                                                      {"gelu", "gelu"},
                                                                      {"gelu_python", "gelu"},
                                                                      {"gelu_new", "gelu_tanh"},
                                                                      {"gelu_pytorch_tanh", "gelu_tanh"},
                                                                      {"gelu_fast", "gelu_tanh"},
                                                                      {"gelu_accurate", "gelu_tanh"},
                                                                      {"gelu_python_tanh", "gelu_tanh"},
                                                                      {"relu", "relu"}};
  const std::string name = config.text_or(key, otherwise);
  if (const auto found = kNames.find(name); found != kNames.end()) return found->second;
  std::string list;
  for (const auto& [theirs, ours] : kNames) list.append(list.empty() ? "" : ", ").append(theirs);
  config.fail(key, "the activation \"" + name + "\" is not built; use one of " + list);
}

/// Of a document with as many keys as there are configurations.
class ConfigBuilder {
 public:
  ConfigBuilder(const Json& json, const ConfigDefaults& defaults, const ConfigArguments& arguments)
      : config_(json, "", std::string(defaults.type)),
        defaults_(defaults),
        arguments_(arguments),
        decoder_(decoder_of_family(defaults.type)) {}

  Decoder build() {
    check_architecture();
    read_sizes();
    if (is("opt")) {
      read_opt();
    } else if (is("gpt2")) {
      read_gpt2();
    } else {
      if (is_deepseek()) read_latent();
      read_rotary();
    }
    if (is("gemma2")) read_gemma2();
    if (is("gpt_neox")) read_gpt_neox();
    if (is("phi3")) read_phi3();
    if (is_deepseek()) scale_latent();
    if (defaults_.experts) read_experts();
    read_windows();
    read_biases();
    decoder_.tied = config_.boolean_or("tie_word_embeddings", defaults_.tied);
    read_padding();
    decoder_.std = config_.number_or(is("opt") ? "init_std" : "initializer_range", decoder_.std, {1e-6, 100});
    const double usual = is("gpt2") ? 0.1 : 0;
    if (const double p = config_.number_or(named("attention_dropout", "attn_pdrop"), usual, {0, 0.99}); p > 0)
      decoder_.attention.emplace("dropout", p);
    for (const std::string_view key :
         {"is_encoder_decoder"sv, "add_cross_attention"sv, "rope_interleaved"sv, "use_mrope"sv})
      config_.require(key, false);
    config_.pass_over(neutral_keys());
    config_.finish();
    return std::move(decoder_);
  }

 private:
  bool is(std::string_view type) const { return defaults_.type == type; }
  bool is_deepseek() const { return is("deepseek_v2") || is("deepseek_v3"); }
  /// GPT-2 has names of its own.
  std::string_view named(std::string_view usual, std::string_view of_gpt2) const {
    return is("gpt2") ? of_gpt2 : usual;
  }

  /// Classifiers, reward and embedding models have another head, or none.
  void check_architecture() {
    if (!config_.given("architectures")) return;
    for (const std::string& name : config_.texts("architectures")) {
      if (name.ends_with("ForCausalLM") || name.ends_with("LMHeadModel")) continue;
      config_.fail("architectures",
                   "\"" + name +
                       "\" is no language model, and only these are built; bring the module in "
                       "by scripts/import-torch, or leave the key out to train a language model "
                       "of this shape");
    }
  }

  void read_sizes() {
    constexpr IntegerRange kWidths{1, kMostWidth};
    decoder_.vocabulary = config_.integer("vocab_size", kWidths);
    decoder_.width = config_.integer(named("hidden_size", "n_embd"), kWidths);
    decoder_.hidden = is("gpt2") ? config_.integer_or("n_inner", 4 * decoder_.width, kWidths)
                                 : config_.integer(is("opt") ? "ffn_dim" : "intermediate_size", kWidths);
    if (is("phi3") && decoder_.hidden > kMostWidth / 2)
      config_.fail("intermediate_size", "must be at most " + std::to_string(kMostWidth / 2));
    const std::string_view count = named("num_hidden_layers", "n_layer");
    blocks_ = config_.integer(count, {1, kMostBlocks});
    const std::int64_t blocks = arguments_.layers.value_or(blocks_);
    if (blocks > blocks_) {
      throw Error(ErrorKind::usage, "layers=" + std::to_string(blocks) + " is above " + std::string(count) +
                                        ", " + std::to_string(blocks_));
    }
    decoder_.blocks.resize(static_cast<std::size_t>(blocks));
    read_heads();
    positions_ = config_.integer(named("max_position_embeddings", "n_positions"), {1, std::int64_t{1} << 30});
    decoder_.sequence = arguments_.sequence.value_or(positions_);
    decoder_.eps = config_.number_or(
        is("gpt_neox") ? "layer_norm_eps" : named("rms_norm_eps", "layer_norm_epsilon"), defaults_.eps, {0, 1});
    if (is("glm4_moe") && config_.boolean_or("use_qk_norm", false)) decoder_.attention.emplace("norms", true);
    if (is("gpt_oss")) decoder_.attention.emplace("sinks", true);
    if (decoder_.attention.contains("norms")) decoder_.attention.emplace("norm_eps", decoder_.eps);
    decoder_.activation = activation_of(config_,
                                        is("opt") || is("gpt2") ? "activation_function"
                                        : is("gemma2")          ? "hidden_activation"
                                                                : "hidden_act",
                                        is("gemma2")     ? "gelu_pytorch_tanh"
                                        : is("gpt2")     ? "gelu_new"
                                        : is("gpt_neox") ? "gelu"
                                        : is("opt")      ? "relu"
                                                         : "silu");
  }

  void read_heads() {
    const std::string_view count = named("num_attention_heads", "n_head");
    decoder_.heads = config_.integer(count, {1, kMostWidth});
    const bool grouped = !is("opt") && !is("gpt_neox") && !is("gpt2");
    const std::int64_t groups = defaults_.groups > 0 ? defaults_.groups : decoder_.heads;
    // A null is as many as heads, also where the class has a number of its own.
    decoder_.groups =
        !grouped ? decoder_.heads
                 : config_.integer_or("num_key_value_heads",
                                      config_.mentioned("num_key_value_heads") ? decoder_.heads : groups,
                                      {1, kMostWidth});
    if (decoder_.heads % decoder_.groups != 0) {
      config_.fail("num_key_value_heads", std::to_string(decoder_.groups) +
                                              " must divide num_attention_heads, " +
                                              std::to_string(decoder_.heads));
    }
    std::int64_t width = grouped ? config_.integer_or("head_dim", defaults_.head_width, {1, kMostWidth}) : 0;
    if (width == 0 && decoder_.width % decoder_.heads != 0 && (!grouped || is("phi3"))) {
      config_.fail(count, std::to_string(decoder_.heads) + " must divide " +
                              std::string(named("hidden_size", "n_embd")) + ", " +
                              std::to_string(decoder_.width));
    }
    if (width == 0) width = std::max<std::int64_t>(1, decoder_.width / decoder_.heads);
    decoder_.head_width = width;
    const std::int64_t packed = decoder_.packed ? decoder_.heads + 2 * decoder_.groups : decoder_.heads;
    if (packed > kMostWidth / width) {
      config_.fail(count, std::to_string(decoder_.heads) + " heads of " + std::to_string(width) +
                              " make projections wider than " + std::to_string(kMostWidth));
    }
  }

  void read_rotary() {
    const bool partial = is("phi3") || is("gpt_neox") || is("glm4_moe");
    read_rope(config_,
              {.base = defaults_.rope_base,
               .base_key = is("gpt_neox") ? "rotary_emb_base" : "rope_theta",
               .share = is("gpt_neox") ? 0.25 : 1.0,
               .share_key = is("gpt_neox") ? "rotary_pct" : "partial_rotary_factor",
               .partial = partial,
               .scaled = !is("phi3"),
               .head_width = decoder_.head_width,
               .positions = positions_},
              decoder_.attention);
    if (!is("smollm3")) return;
    const std::int64_t interval = config_.integer_or("no_rope_layer_interval", 4, {1, kMostBlocks});
    std::vector<std::int64_t> rotates;
    if (config_.given("no_rope_layers")) rotates = config_.integers("no_rope_layers", {0, 1});
    if (!rotates.empty() && std::ssize(rotates) < std::ssize(decoder_.blocks))
      config_.fail("no_rope_layers",
                   "must have an entry for each of the " + std::to_string(blocks_) + " layers");
    for (std::size_t i = 0; i < decoder_.blocks.size(); ++i) {
      decoder_.blocks[i].rotates =
          rotates.empty() ? (static_cast<std::int64_t>(i) + 1) % interval != 0 : rotates[i] == 1;
    }
  }

  void read_gemma2() {
    constexpr NumberRange kCaps{1e-6, 1e6};
    decoder_.embedding_scale = std::sqrt(static_cast<double>(decoder_.width));
    decoder_.attention.emplace("scale",
                               1 / std::sqrt(config_.number_or("query_pre_attn_scalar", 256, {1e-6, 1e9})));
    if (const double cap = config_.number_or("attn_logit_softcapping",
                                             config_.mentioned("attn_logit_softcapping") ? 0 : 50, kCaps);
        cap > 0)
      decoder_.attention.emplace("soft_cap", cap);
    decoder_.logit_cap = config_.number_or("final_logit_softcapping",
                                           config_.mentioned("final_logit_softcapping") ? 0 : 30, kCaps);
    config_.require("use_bidirectional_attention", false);
    static constexpr std::array kUnread{"hidden_act"sv, "sliding_window_size"sv};
    config_.pass_over(kUnread);
  }

  void read_latent() {
    constexpr IntegerRange kWidths{1, kMostWidth};
    LatentAttention& latent = decoder_.latent;
    latent = {.queries = config_.integer_or("q_lora_rank", 0, kWidths),
              .keys = config_.integer("kv_lora_rank", kWidths),
              .rotated = config_.integer("qk_rope_head_dim", kWidths),
              .straight = config_.integer("qk_nope_head_dim", kWidths),
              .values = config_.integer("v_head_dim", kWidths)};
    if (decoder_.heads > kMostWidth / (latent.rotated + latent.straight + latent.values))
      config_.fail(
          "num_attention_heads",
          std::to_string(decoder_.heads) + " heads make projections wider than " + std::to_string(kMostWidth));
    config_.require("mlp_bias", false);
    decoder_.head_width = latent.rotated;
    decoder_.attention.emplace("rotary_interleaved",
                               config_.boolean_or("rope_interleave", true) || is("deepseek_v2"));
  }

  /// With yarn's factor of the scores, squared.
  void scale_latent() {
    const std::string_view key = config_.given("rope_scaling") ? "rope_scaling" : "rope_parameters";
    if (!decoder_.attention.contains("rotary_scaling")) return;
    ConfigReader rope = config_.object(key);
    const double weight = rope.number_or("mscale_all_dim", 0, {0, 1e6});
    const double factor = yarn_magnitude(rope.number_or("factor", 1, {1e-6, 1e6}), weight);
    const auto width = static_cast<double>(decoder_.latent.straight + decoder_.latent.rotated);
    if (weight > 0) decoder_.attention.emplace("scale", factor * factor / std::sqrt(width));
  }

  void read_experts() {
    constexpr IntegerRange kCounts{1, kMostWidth};
    const bool dense_first = is_deepseek() || is("glm4_moe"), whole = is("mixtral") || is("gpt_oss");
    const bool v3 = is("deepseek_v3"), sigmoid = v3 || is("glm4_moe");
    const std::string_view count = dense_first                    ? "n_routed_experts"
                                   : config_.given("num_experts") ? "num_experts"
                                                                  : "num_local_experts";
    const std::int64_t hidden = whole ? decoder_.hidden : config_.integer("moe_intermediate_size", kCounts);
    if (hidden > kMostWidth / 2)
      config_.fail("intermediate_size", "must be at most " + std::to_string(kMostWidth / 2));
    if (config_.text_or("scoring_func", sigmoid ? "sigmoid" : "softmax") != (sigmoid ? "sigmoid" : "softmax"))
      config_.fail("scoring_func", "is another than that of " + config_.who());
    decoder_.experts = {{"num_experts", config_.integer(count, {1, kMostExperts})},
                        {"experts_per_token", config_.integer("num_experts_per_tok", kCounts)},
                        {"hidden", hidden},
                        {"activation", decoder_.activation},
                        {"scores", sigmoid ? "sigmoid" : "softmax"},
                        {"normalised", config_.boolean_or("norm_topk_prob", whole || sigmoid)},
                        {"factor", config_.number_or("routed_scaling_factor", v3 ? 2.5 : 1, {1e-6, 1e6})},
                        {"correction", sigmoid},
                        {"tensors", is("mixtral") ? "w1" : "gate_proj"},
                        {"bias", is("gpt_oss")}};
    if (is("gpt_oss"))
      decoder_.experts.insert({{"limit", config_.number_or("swiglu_limit", 7, {1e-6, 1e6})},
                               {"alpha", config_.number_or("swiglu_alpha", 1.702, {1e-6, 1e6})}});
    if (is("deepseek_v2")) config_.require("norm_topk_prob", false);
    const std::string usual = sigmoid ? "noaux_tc" : "greedy", method = config_.text_or("topk_method", usual);
    const bool grouped = is("deepseek_v2") && method == "group_limited_greedy";
    if (method != usual && !grouped) config_.fail("topk_method", "\"" + method + "\" is not built");
    const std::int64_t groups = config_.integer_or("n_group", v3 ? 8 : 1, kCounts),
                       open = config_.integer_or("topk_group", v3 ? 4 : 1, kCounts);
    if (sigmoid || grouped) decoder_.experts.insert({{"groups", groups}, {"groups_per_token", open}});
    const std::int64_t shared = config_.mentioned("n_shared_experts") ? 0 : is("deepseek_v2") ? 2 : 1;
    decoder_.shared_hidden = dense_first ? hidden * config_.integer_or("n_shared_experts", shared, {0, 1024})
                             : is("qwen2_moe") ? config_.integer("shared_expert_intermediate_size", kCounts)
                                               : 0;
    read_places_of_experts();
    refuse_balancing();
    // transformers neither trains DeepSeek's losses nor predicts further tokens.
    static constexpr std::array kUnread{"aux_loss_alpha"sv,
                                        "seq_aux"sv,
                                        "ep_size"sv,
                                        "num_nextn_predict_layers"sv,
                                        "num_mtp_layers"sv,
                                        "qk_head_dim"sv,
                                        "quantization_config"sv,
                                        "initial_context_length"sv,
                                        "experts_per_token"sv,
                                        "num_local_experts"sv,
                                        "head_dim"sv};
    config_.pass_over(kUnread);
  }

  /// What couples samples, or draws.
  void refuse_balancing() {
    const bool loss = config_.boolean_or("output_router_logits", false);
    const double factor = config_.number_or("router_aux_loss_coef", 0.001, {0, 1e6});
    if (loss && factor > 0 && !is_deepseek() && !is("glm4_moe"))
      config_.fail("output_router_logits",
                   "adds a loss that balances the experts of all layers over all positions of a mini-batch, "
                   "which no micro-batch and no stage has together; set it to false" +
                       std::string(kLimits));
    if (config_.number_or("router_jitter_noise", 0, {0, 1}) > 0)
      config_.fail("router_jitter_noise", "noise in front of routers is not built; set it to 0");
  }

  /// Which blocks have experts: all behind the first dense ones, or every so many less those that are named.
  void read_places_of_experts() {
    constexpr IntegerRange kBlocks{0, kMostBlocks};
    const std::int64_t first = is("deepseek_v3") ? 3 : is("glm4_moe") ? 1 : 0;
    const std::int64_t dense =
        is_deepseek() || is("glm4_moe") ? config_.integer_or("first_k_dense_replace", first, kBlocks) : 0;
    if (config_.integer_or("moe_layer_freq", 1, {1, kMostBlocks}) != 1)
      config_.fail("moe_layer_freq", "must be 1; " + config_.who() + " is built only so");
    const std::int64_t step = config_.integer_or("decoder_sparse_step", 1, {1, kMostBlocks});
    std::vector<std::int64_t> without;
    if (config_.given("mlp_only_layers")) without = config_.integers("mlp_only_layers", kBlocks);
    for (std::int64_t i = 0; i < std::ssize(decoder_.blocks); ++i)
      decoder_.blocks[static_cast<std::size_t>(i)].experts =
          i >= dense && (i + 1) % step == 0 && std::ranges::find(without, i) == without.end();
  }

  void read_gpt_neox() {
    decoder_.parallel = config_.boolean_or("use_parallel_residual", true);
    decoder_.residual_dropout = decoder_.embedding_dropout = config_.number_or("hidden_dropout", 0, {0, 0.99});
    static constexpr std::array kUnread{"attention_probs_dropout_prob"sv, "hidden_dropout_prob"sv};
    config_.pass_over(kUnread);
  }

  void read_phi3() {
    decoder_.residual_dropout = config_.number_or("resid_pdrop", 0, {0, 0.99});
    static constexpr std::array kUnread{"embd_pdrop"sv, "original_max_position_embeddings"sv};
    config_.pass_over(kUnread);
  }

  /// Learned positions.
  void read_table() {
    if (decoder_.sequence > positions_) {
      throw Error(ErrorKind::usage, "sequence=" + std::to_string(decoder_.sequence) + " is above " +
                                        std::string(named("max_position_embeddings", "n_positions")) + ", " +
                                        std::to_string(positions_) + ", the rows of its table");
    }
    decoder_.position_rows = positions_ + decoder_.position_offset;
  }

  void read_gpt2() {
    read_table();
    decoder_.residual_dropout = config_.number_or("resid_pdrop", 0.1, {0, 0.99});
    decoder_.embedding_dropout = config_.number_or("embd_pdrop", 0.1, {0, 0.99});
    config_.require("scale_attn_weights", true);
    config_.require("scale_attn_by_inverse_layer_idx", false);
    config_.require("reorder_and_upcast_attn", false);
    static constexpr std::array kUnread{"n_ctx"sv,
                                        "summary_type"sv,
                                        "summary_use_proj"sv,
                                        "summary_activation"sv,
                                        "summary_proj_to_labels"sv,
                                        "summary_proj_to_logits"sv,
                                        "summary_first_dropout"sv};
    config_.pass_over(kUnread);
  }

  void read_opt() {
    read_table();
    const std::int64_t embedding = config_.integer_or("word_embed_proj_dim", decoder_.width, {1, kMostWidth});
    if (embedding != decoder_.width) decoder_.embedding_width = embedding;
    const bool before = config_.boolean_or("do_layer_norm_before", true);
    if (!before) decoder_.norms = NormPlace::after;
    const bool removed = config_.boolean_or("_remove_final_layer_norm", false);
    decoder_.last_norm = before && !removed;
    decoder_.residual_dropout = config_.number_or("dropout", 0.1, {0, 0.99});
    if (config_.number_or("layerdrop", 0, {0, 1}) > 0)
      config_.fail("layerdrop", "layers that are left out at random are not built; set it to 0");
    config_.require("layer_norm_elementwise_affine", true);
    static constexpr std::array kUnread{"activation_dropout"sv};
    config_.pass_over(kUnread);
  }

  void read_windows() {
    if (is("llama") || is("gpt_neox") || is("opt") || is("gpt2") || is_deepseek() || is("glm4_moe")) return;
    const bool qwen = is("qwen2") || is("qwen3") || is("qwen2_moe") || is("qwen3_moe");
    const bool switched = qwen || is("smollm3"), alternates = is("gemma2") || is("gpt_oss");
    const bool on = !switched || config_.boolean_or("use_sliding_window", false);
    const std::int64_t window =
        config_.integer_or("sliding_window", config_.mentioned("sliding_window") ? 0 : defaults_.window,
                           {0, std::int64_t{1} << 30});
    const bool by_type = switched || alternates;
    const std::int64_t first =
        qwen ? config_.integer_or("max_window_layers", 28, {0, std::int64_t{1} << 30}) : 0;
    std::vector<std::string> types;
    if (by_type && config_.given("layer_types")) types = config_.texts("layer_types");
    check_types(types);
    for (std::size_t i = 0; i < decoder_.blocks.size(); ++i) {
      const bool slides = !types.empty()  ? types[i] == "sliding_attention"
                          : alternates    ? i % 2 == 0
                          : is("smollm3") ? !decoder_.blocks[i].rotates
                                          : static_cast<std::int64_t>(i) >= first;
      if (on && slides) decoder_.blocks[i].window = window;
    }
  }

  void check_types(const std::vector<std::string>& types) const {
    if (types.empty()) return;
    if (std::ssize(types) < std::ssize(decoder_.blocks))
      config_.fail("layer_types", "must have an entry for each of the " + std::to_string(blocks_) + " layers");
    for (const std::string& type : types) {
      if (type != "full_attention" && type != "sliding_attention")
        config_.fail("layer_types", "\"" + type + "\" is not built; use full_attention and sliding_attention");
    }
  }

  void read_biases() {
    if (is("llama") || is("qwen3") || is("gemma2") || is("smollm3") || is("qwen3_moe") || is_deepseek() ||
        is("gpt_oss"))
      decoder_.query_bias = decoder_.out_bias = config_.boolean_or("attention_bias", is("gpt_oss"));
    if (is("glm4_moe")) decoder_.query_bias = config_.boolean_or("attention_bias", false);
    if (is("qwen2_moe")) decoder_.query_bias = config_.boolean_or("qkv_bias", true);
    if (is("phi3") || is("mistral")) config_.require("attention_bias", false);
    if (is("llama") || is("smollm3")) decoder_.up_bias = config_.boolean_or("mlp_bias", false);
    if (is("gpt_neox")) decoder_.query_bias = decoder_.out_bias = config_.boolean_or("attention_bias", true);
    if (is("opt"))
      decoder_.query_bias = decoder_.out_bias = decoder_.up_bias = config_.boolean_or("enable_bias", true);
  }

  /// The row of the embedding that transformers gives no gradient; it counts from the end where it is negative.
  void read_padding() {
    const std::int64_t most = decoder_.vocabulary - 1;
    if (is("gpt_neox") || is("gpt2")) {
      config_.mentioned("pad_token_id");
      return;
    }
    if (config_.given("pad_token_id")) {
      const std::int64_t token = config_.integer("pad_token_id", {-decoder_.vocabulary, most});
      decoder_.padding = token < 0 ? token + decoder_.vocabulary : token;
    } else if (!config_.mentioned("pad_token_id") && defaults_.padding >= 0) {
      decoder_.padding = defaults_.padding;
      if (decoder_.padding > most) {
        config_.fail("pad_token_id", "is missing, and " + std::to_string(defaults_.padding) + ", which " +
                                         config_.who() +
                                         " takes then, is not below vocab_size; give it, or null");
      }
    }
  }

  ConfigReader config_;
  const ConfigDefaults& defaults_;
  const ConfigArguments& arguments_;
  Decoder decoder_;
  std::int64_t blocks_ = 0, positions_ = 0;
};

std::string model_name(std::string_view type, const ConfigArguments& arguments) {
  std::string name(type);
  char separator = ':';
  const auto add = [&](const char* key, const std::optional<std::int64_t>& value) {
    if (value) name += std::exchange(separator, ',') + std::string(key) + "=" + std::to_string(*value);
  };
  add("layers", arguments.layers);
  add("sequence", arguments.sequence);
  return name;
}

}  // namespace

bool is_hugging_face_config(const Json& json) {
  return json.is_object() && json.contains("model_type") && !json.contains("format");
}

ModelGraph build_hugging_face(const Json& given, std::string_view text) {
  const ConfigArguments arguments = parse_arguments(text);
  const ConfigDefaults& defaults = config_defaults(given);
  Json config = given;
  const auto silent = [&](const char* key) { return !config.contains(key) || config[key].is_null(); };
  if (defaults.type == "gpt_oss" && silent("rope_scaling") && silent("rope_parameters"))
    config["rope_parameters"] = {
        {"rope_type", "yarn"}, {"factor", 32}, {"original_max_position_embeddings", 4096}, {"truncate", false}};
  const Decoder decoder = ConfigBuilder(config, defaults, arguments).build();
  return resolve(build_decoder(GraphBuilder(model_name(defaults.type, arguments)), decoder)).graph;
}

}  // namespace pp::model
