// The families of decoders, a row each: what a family is whatever its size, how its config.json says the rest,
// and what transformers' class takes where that is silent. A family of known parts is a row, and a file of
// values in tests/data/families. Private to the families.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "libprofile/model/families/config_reader.h"
#include "libprofile/model/families/decoder.h"

namespace pp::model {

inline constexpr std::int64_t kMostWidth = 1 << 20;

/// What a family calls things.
struct ConfigKeys {
  std::string_view width = "hidden_size", hidden = "intermediate_size", blocks = "num_hidden_layers";
  std::string_view heads = "num_attention_heads", positions = "max_position_embeddings", eps = "rms_norm_eps";
  std::string_view activation = "hidden_act", dropout = "attention_dropout", std = "initializer_range";
  std::string_view rope_base = "rope_theta", rope_share = "partial_rotary_factor";
};

/// A key that adds biases. Without any of the three: it must be `otherwise`.
struct BiasKey {
  std::string_view key;
  bool otherwise = false;
  bool query = false, out = false, up = false;  ///< as Decoder has them
};

/// Which blocks have a window, where the document does not list their types.
enum class Windows {
  none,
  all,
  behind,     ///< from max_window_layers on, if use_sliding_window says so
  alternate,  ///< the first, the third, ...
  unrotated   ///< those without positions, if use_sliding_window says so
};

/// How its mixtures of experts differ.
struct ExpertsRow {
  bool whole = false;          ///< an expert is as wide as intermediate_size says
  bool dense_first = false;    ///< n_routed_experts, behind so many dense blocks; with experts for every token
  std::int64_t dense = 0;      ///< first_k_dense_replace
  std::int64_t shared = 1;     ///< n_shared_experts
  bool sigmoid = false;        ///< scores; else a softmax
  bool limits_groups = false;  ///< topk_method may be group_limited_greedy
  double factor = 1;           ///< routed_scaling_factor
  std::int64_t groups = 1, open_groups = 1;
  std::string_view shared_hidden = {};  ///< key of the width of a perceptron beside the experts
  std::string_view tensors = "gate_proj";
  bool clamped = false;  ///< biases, and limits of the gate
};

struct DecoderRow {
  std::string_view type;  ///< model_type
  void (*shape)(Decoder& decoder) = nullptr;
  void (*read)(ConfigReader& config, Decoder& decoder) = nullptr;  ///< keys that no other family has
  ConfigKeys keys = {};
  std::span<const BiasKey> biases = {};
  const ExpertsRow* experts = nullptr;
  Windows windows = Windows::none;
  std::string_view activation = "silu";
  bool grouped = true;      ///< num_key_value_heads and head_dim are keys
  bool divides = false;     ///< heads divide the width, whatever head_dim says
  bool table = false;       ///< learned positions, else rotary ones
  bool partial = false;     ///< a part of a head may be turned
  bool scaled = true;       ///< positions may be scaled
  bool skips_rope = false;  ///< no_rope_layers
  bool pads = true;         ///< the padding token's embedding gets no gradient
  bool tied = false;
  std::int64_t padding = -1;    ///< -1: none
  std::int64_t groups = 0;      ///< 0: as many as heads
  std::int64_t head_width = 0;  ///< 0: width / heads
  std::int64_t window = 0;
  double rope_base = 10000, rope_share = 1;
  std::string_view rope = {};  ///< rope_parameters as text
  double eps = 1e-6;
  double dropout = 0;              ///< of attention
  std::int64_t hidden_widths = 0;  ///< the perceptron's width where the document is silent; 0: it never is
};

std::span<const DecoderRow> decoder_rows();
/// Null: there is none.
const DecoderRow* find_decoder_row(std::string_view type);
/// `mixtral, qwen2_moe, ...`
std::string mixture_families();

}  // namespace pp::model
