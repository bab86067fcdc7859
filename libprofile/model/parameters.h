// Initial weights: drawn per parameter from (seed, model-wide parameter name), with PyTorch's default
// distributions, so that they depend neither on the plan nor on the order of drawing.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "libprofile/core/model/model_graph.h"

namespace pp::model {

/// Parameter `index` of layer `layer`; drawn in float32, converted to `dtype`. Not a leaf: no gradient is
/// required yet.
at::Tensor initial_parameter(const ResolvedModel& model, int layer, int index, std::uint64_t seed, DType dtype);
/// Standard deviation, around 0, of what calls of LibTorch have in two dimensions or more. Of fewer: `weight`
/// 1, everything else 0.
inline constexpr double kSpreadOfCalls = 0.02;

/// Of batch norm: running_mean zeros, running_var ones. Of calls: zeros, in the buffer's own type.
at::Tensor initial_buffer(const ResolvedModel& model, int layer, int index, DType dtype);

}  // namespace pp::model
