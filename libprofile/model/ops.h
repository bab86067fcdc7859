// Layers as pure functions: (weights, inputs, context) -> outputs. One forward per row of pp::op_table(), found
// by name; nothing hides state, so one layer can run with any version of its weights, be run again, and gives
// the same result in whatever stage it lands.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "libprofile/core/model_graph.h"

namespace pp::model {

enum class Mode { training, evaluation };

/// What every random draw of one pass derives from; with the model-wide layer index it keys the generator, so
/// that masks do not depend on the plan.
struct RandomKey {
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  std::int64_t micro_batch = 0;
};

/// Sums of one batch norm layer over one micro-batch, for the deferred running statistics (schedules.md 3.1).
struct BatchStatistics {
  int layer = 0;           ///< model-wide index
  std::int64_t count = 0;  ///< values per channel
  at::Tensor sum;          ///< [channels] float64
  at::Tensor square_sum;   ///< [channels] float64
};

struct LayerContext {
  Mode mode = Mode::training;
  RandomKey key;
  int layer = 0;  ///< model-wide index
  at::Generator* generator =
      nullptr;  ///< private to the worker; reseeded from (key, layer) by the layer's first draw
  std::span<const at::Tensor> buffers;  ///< in the order of the op's buffers; read in evaluation only
  std::vector<BatchStatistics>* statistics =
      nullptr;          ///< where batch norm leaves its sums in training; null: dropped
  bool seeded = false;  ///< the layer has drawn before: further draws continue the stream
};

/// `weights` in the order of the op's parameters. Inputs are [n, shape...]. Outputs may share storage with
/// inputs (flatten), never modify them.
using Forward = std::vector<at::Tensor> (*)(const Attributes& attributes, std::span<const at::Tensor> inputs,
                                            std::span<const at::Tensor> weights, LayerContext& context);
/// Null when unknown.
Forward find_forward(std::string_view op);
std::vector<std::string_view> forward_names();

/// Mean loss of a micro-batch, a scalar.
using LossForward = at::Tensor (*)(const Attributes& attributes, const at::Tensor& prediction,
                                   const at::Tensor& target);
LossForward find_loss_forward(std::string_view loss);
std::vector<std::string_view> loss_forward_names();

/// splitmix64 over (seed, step, micro-batch, layer).
std::uint64_t mix(const RandomKey& key, int layer);

at::ScalarType scalar_type(DType dtype);

}  // namespace pp::model
