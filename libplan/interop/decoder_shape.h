// A decoder as trainers describe it beside its sizes: norms, feed-forward network, biases, positions, dropout.
// Read off the layers of the model, which must be of the one form that such a description has:
// norm, attention, sum, norm, feed-forward network or mixture of experts, sum, in every block alike.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "libplan/interop/block_row.h"
#include "libprofile/core/ops/attributes.h"

namespace pp::plan::detail {

/// A mixture that some blocks have, or all.
struct ExpertsShape {
  std::int64_t count = 0, per_token = 0;  ///< 0: there is none
  std::int64_t shared_hidden = 0;         ///< of the shared perceptron
  bool sigmoid = false, normalised = true, correction = false;
  std::int64_t groups = 1, groups_per_token = 1;
  double factor = 1;
  bool operator==(const ExpertsShape&) const = default;
};

/// Widths of multi-head latent attention.
struct LatentShape {
  std::int64_t queries = 0, keys = 0;  ///< of the vectors that they are made of; 0: there is none
  std::int64_t straight = 0, rotated = 0, values = 0;  ///< of a head
  double scale = 0;                                    ///< of scores; 0: the usual one
  bool operator==(const LatentShape&) const = default;
};

struct DecoderShape {
  bool layer_norm = false;  ///< else by the root mean square
  double norm_eps = 0;
  double norm_offset = 0;                            ///< added to the weights of norms
  bool gated = false;                                ///< the feed-forward network's activation has a gate
  GateActivation activation = GateActivation::gelu;  ///< gelu by tanh is gelu, too
  bool qkv_bias = false, out_bias = false, feed_forward_bias = false;
  bool head_norms = false;      ///< of queries and of keys
  std::int64_t head_width = 0;  ///< of queries
  std::int64_t window = 0;      ///< positions that attention sees; 0: all earlier ones
  std::int64_t rotary_dim = 0;  ///< elements of a head that are turned by its position
  double rotary_base = 0;       ///< where rotary_dim is above 0
  RotaryScaling rotary_scaling = RotaryScaling::none;
  double rotary_factor = 1;
  bool usual_scaling = true;       ///< llama3: its factors 1 and 4 of 8,192 positions
  std::int64_t position_rows = 0;  ///< learned positions: rows of their table
  double attention_dropout = 0, hidden_dropout = 0;
  ExpertsShape experts;
  LatentShape latent;
  bool operator==(const DecoderShape&) const = default;
};

/// The shape, or the layer that is not of the form and why: `model.layers.0.post_norm, rms_norm: add is
/// expected there`.
std::variant<DecoderShape, std::string> decoder_shape(const ResolvedModel& model, const BlockRow& row);

}  // namespace pp::plan::detail
