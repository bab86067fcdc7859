// Initial weights: drawn per parameter from (seed, model-wide parameter name), with PyTorch's default
// distributions, so that they depend neither on the plan nor on the order of drawing.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "libprofile/core/model_graph.h"

namespace pp::model {

/// Parameter `index` of layer `layer`; drawn in float32, converted to `dtype`. Not a leaf: no gradient is
/// required yet.
at::Tensor initial_parameter(const ResolvedModel& model, int layer, int index, std::uint64_t seed, DType dtype);
/// running_mean zeros, running_var ones, ...
at::Tensor initial_buffer(const ResolvedModel& model, int layer, int index, DType dtype);

}  // namespace pp::model
