// What grouped_query_attention is made of: its settings, the heads within its inputs, who sees whom.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "libprofile/model/ops/forward.h"

namespace pp::model::ops {

struct GroupedSettings {
  std::int64_t heads = 1, groups = 1;  ///< of queries; of keys and values
  bool causal = true;
  HeadPacking packing = HeadPacking::parts;
  std::int64_t turned = 0;  ///< rotary_dim
  std::int64_t window = 0;  ///< positions seen; 0: all
  double scale = 0;         ///< 0: 1 / sqrt(width)
  double soft_cap = 0;      ///< 0: none
  double dropout = 0;
  bool norms = false, sinks = false;
  double eps = 0;

  explicit GroupedSettings(const Attributes& attributes);
  /// LibTorch's kernels hold no scores; what they cannot do is written out.
  bool needs_scores() const { return soft_cap > 0 || dropout > 0; }
  double factor(std::int64_t width) const;
};

/// Queries [n, l, heads, d], keys [n, l, groups, d], values [n, l, groups, e].
struct Heads {
  at::Tensor queries, keys, values;
  at::Tensor sinks = {};  ///< [heads], scores that no value follows; or undefined
};

/// Views of three inputs, or of one; latent keys are put together.
Heads heads_of(const GroupedSettings& settings, TensorSpan inputs);
/// The gradients of the inputs from those of their heads.
Tensors joined(const GroupedSettings& settings, const Heads& gradients, bool packed);

/// Whether a mask is needed for `length` positions: a window smaller than them, under a causal order.
bool is_windowed(const GroupedSettings& settings, std::int64_t length);
/// Added to scores: 0 where a query sees a key, -inf where not; [l, l].
at::Tensor sight_mask(const GroupedSettings& settings, std::int64_t length, const at::TensorOptions& options);
/// The same for queries at `first` and on, sample by sample, and keys from 0 on: [n, 1, l, keys].
at::Tensor sight_mask(const GroupedSettings& settings, const Piece& piece, std::int64_t length,
                      std::int64_t keys, const at::TensorOptions& options);

/// Scores at once, for caps and dropout: queries [n, heads, l, d], keys and values [n, groups, k, .] -> [n,
/// heads, l, e]. `mask` as sight_mask(), or undefined.
at::Tensor attend_with_scores(const GroupedSettings& settings, const Heads& by_head, const at::Tensor& mask,
                              LayerContext& context);

}  // namespace pp::model::ops
