// One description of the decoder-only language models since GPT-NeoX: what differs between their families is a
// field. The built-in families and Hugging Face's config.json both fill one in; one function builds all of
// them. Layers are named so that parameters have the names of the published tensors. Private to the families.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "libprofile/core/model/model_graph.h"
#include "libprofile/model/families/builder.h"

namespace pp::model {

struct DecoderBlock {
  bool rotates = true;      ///< rotary positions, where the model has them
  std::int64_t window = 0;  ///< positions that attention sees; 0: all earlier ones
  bool experts = false;     ///< a mixture in place of the perceptron
};

/// DeepSeek-AI, DeepSeek-V2, 2024, sec. 2.1: keys and values are made of a narrow vector, and one rotated key
/// serves all heads.
struct LatentAttention {
  std::int64_t queries = 0;  ///< width of the vector that queries are made of; 0: there is none
  std::int64_t keys = 0;     ///< the same of keys and values; 0: no such attention
  std::int64_t rotated = 0, straight = 0, values = 0;  ///< widths of a head
};

/// Where a block's norms stand: in front of attention and perceptron; there and behind them, inside the
/// residual; behind the residual.
enum class NormPlace { before, around, after };

/// Within the block, but for the first four and the last two.
struct DecoderNames {
  std::string embedding = "model.embed_tokens", embedding_scale = "model.embed_scale";
  std::string positions = {}, blocks = "model.layers";
  std::string norm1 = "input_layernorm", norm2 = "post_attention_layernorm";
  std::string post_norm1 = {}, post_norm2 = {};  ///< with NormPlace::around
  std::string attention = "self_attn";
  std::string query = "q_proj", key = "k_proj", value = "v_proj", packed = {}, out = "o_proj";
  std::string up = "mlp.up_proj", down = "mlp.down_proj", activation = "mlp.act_fn";
  std::string gate = "mlp.gate_proj";
  std::string experts = "mlp", shared = "mlp.shared_experts", shared_gate = {};
  std::string norm = "model.norm", head = "lm_head";
};

struct Decoder {
  std::int64_t vocabulary = 1, width = 1, hidden = 1, heads = 1, groups = 1, head_width = 1, sequence = 1;
  std::vector<DecoderBlock> blocks;
  std::int64_t predictions = 0;  ///< the last of them, which predict one token further each
  DecoderNames names;
  bool layer_norm = false;  ///< else by the root mean square
  double eps = 1e-6;
  double norm_offset = 0;  ///< of rms norms
  NormPlace norms = NormPlace::before;
  bool last_norm = true;
  bool parallel = false;  ///< attention and perceptron read the same x, and their results are added to it
  bool packed = false;    ///< one projection to queries, keys and values, one to gate and up
  bool query_bias = false, out_bias = false, up_bias = false;  ///< of keys and values too; of gate and down too
  bool gated = true;
  std::string activation = "silu";  ///< silu, gelu, gelu_tanh, relu
  Attributes attention;             ///< of grouped_query_attention, less heads and windows
  LatentAttention latent;           ///< what its inputs are made of
  Attributes experts;               ///< of mixture_of_experts
  std::int64_t shared_hidden = 0;   ///< of a perceptron beside each mixture; 0: there is none
  double embedding_scale = 1;
  double logit_cap = 0;              ///< 0: none
  std::int64_t position_rows = 0;    ///< learned positions: rows of their table; 0: none
  std::int64_t position_offset = 0;  ///< row of the first one
  std::int64_t embedding_width = 0;  ///< where another than `width`, with projections between them; 0: the same
  std::int64_t padding = -1;         ///< token whose embedding gets no gradient; -1: none
  double residual_dropout = 0;       ///< on what attention and perceptron add
  double embedding_dropout = 0;
  double std = 0.02;  ///< of the initial weights
  /// What a block adds to its input starts at std / sqrt(2 layers): Radford et al., 2019, sec. 2.3.
  bool scaled_residuals = false;
  bool tied = false;  ///< the head has the embedding's weights
};

/// What a family of decoder_rows.h is by itself: names, norms, activation, positions; sizes are left to be
/// filled in. Throws pp::Error (internal) for others.
Decoder decoder_of_family(std::string_view family);

/// Tokens [sequence] -> logits [sequence, vocabulary], with cross entropy against the next tokens. With
/// predictions (DeepSeek-AI, DeepSeek-V3 technical report, 2024, sec. 2.2) also of the tokens behind these, as
/// further positions in front of the head: Megatron-Core joins and weighs them so. A prediction reads the
/// tokens that the one before it predicts, which are inputs `tokens_1`, `tokens_2`, ...
ModelGraph build_decoder(GraphBuilder builder, const Decoder& decoder);

}  // namespace pp::model
