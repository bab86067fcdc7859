// Rotary positions: Su et al., RoFormer: enhanced transformer with rotary position embedding, 2021. Pairs of
// elements of a head are turned by position times frequency. The frequencies and the tables of sines and
// cosines are computed in float32, whatever the type of the run, as transformers does: weights were trained
// with these.
#pragma once

#include <ATen/core/Tensor.h>

#include <list>
#include <mutex>
#include <utility>
#include <vector>

#include "libprofile/core/ops/attributes.h"

namespace pp::model::ops {

struct RotarySettings {
  std::int64_t dim = 0;           ///< elements of a head that are turned; 0: none
  bool last = false;              ///< they are its last ones, not the first
  std::int64_t exponent_dim = 0;  ///< pair i turns by base^(-2 i / this): the same, but where that was odd
  double base = 10000;
  bool interleaved = false;  ///< pairs (0, 1), (2, 3), ...; else (0, dim/2), (1, dim/2 + 1), ...
  RotaryScaling scaling = RotaryScaling::none;
  double factor = 1;
  double original_length = 0;
  double low_freq_factor = 1, high_freq_factor = 4;  ///< llama3
  double beta_fast = 32, beta_slow = 1;              ///< yarn
  bool truncate = true;                              ///< yarn
  double magnitude = 1;                              ///< of sines and cosines

  explicit RotarySettings(const Attributes& attributes);
};

/// Radians per position, float32 [dim / 2]. Linear: divided by the factor (Chen et al., Extending context
/// window of large language models via position interpolation, 2023). llama3: divided where the wavelength is
/// long beside the original length, kept where it is short, blended between (Llama team, The Llama 3 herd of
/// models, 2024, as transformers has it). yarn: the same by number of turns, along a ramp over the dimensions
/// (Peng et al., YaRN: efficient context window extension of large language models, 2023, sec. 3.2).
at::Tensor rotary_frequencies(const RotarySettings& settings);

/// Cosines and sines by position, [positions, dim / 2] each, as far as they have been asked for. Thread-safe.
class RotaryTable {
 public:
  struct Rows {
    at::Tensor cosines, sines;
  };
  explicit RotaryTable(RotarySettings settings) : settings_(std::move(settings)) {}

  const RotarySettings& settings() const { return settings_; }
  /// Of positions 0 to `length` - 1.
  Rows rows(std::int64_t length, const at::TensorOptions& options);
  /// Adds all tensors held.
  void collect(std::vector<at::Tensor>& tensors);

 private:
  RotarySettings settings_;
  std::mutex mutex_;
  std::list<Rows> made_;  ///< per device and type
};

enum class Turn { forth, back };

/// x [n, l, heads, width], rows [l, 1, dim / 2] or [n, l, 1, dim / 2] -> the same as a new tensor, which
/// autograd can follow.
at::Tensor turned(const RotarySettings& settings, const at::Tensor& x, const RotaryTable::Rows& rows);
/// In place; the same bits.
void turn(const RotarySettings& settings, const at::Tensor& x, const RotaryTable::Rows& rows, Turn direction);

}  // namespace pp::model::ops
