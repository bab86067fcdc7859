// Initial weights: drawn per parameter from (seed, model-wide parameter name), with PyTorch's default
// distributions, so that they depend neither on the plan nor on the order of drawing.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "libprofile/core/model/model_graph.h"

namespace pp::model {

/// Parameter `index` of layer `layer`, and where its values go: of its shape, of any type and device.
struct ParameterPlace {
  int layer = 0, index = 0;
  at::Tensor to;
};
/// Draws them in float32, as many at a time as the calling thread has threads for an operation: at once to
/// their place where that is float32 in the CPU's memory, else beside it: one for each thread, or 2 GiB.
void draw_parameters(const ResolvedModel& model, std::vector<ParameterPlace> places, std::uint64_t seed);
/// One of them, of `dtype`. Not a leaf: no gradient is required yet.
at::Tensor initial_parameter(const ResolvedModel& model, int layer, int index, std::uint64_t seed, DType dtype);
/// Standard deviation, around 0, of what calls of LibTorch have in two dimensions or more. Of fewer: `weight`
/// 1, everything else 0.
inline constexpr double kSpreadOfCalls = 0.02;

/// Of batch norm: running_mean zeros, running_var ones. Of calls: zeros, in the buffer's own type.
at::Tensor initial_buffer(const ResolvedModel& model, int layer, int index, DType dtype);

}  // namespace pp::model
