// Random inputs and targets of the types that the model declares.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "libprofile/core/model/model_graph.h"

namespace pp::profile {

const TensorType& type_of(const ResolvedModel& model, const TensorSource& source);

/// Integers that may stand in this model input or target: below the number of rows of every embedding that it
/// reaches, and of classes of a cross entropy loss; 2 when nothing says more.
std::int64_t integer_limit(const ResolvedModel& model, const TensorSource& source);

/// One tensor [n, shape...] per source, each a model input or a target. Floating ones are normal(0, 1) in
/// `dtype`, integer ones uniform in [0, integer_limit). The same seed gives the same numbers.
std::vector<at::Tensor> random_batch(const ResolvedModel& model, const std::vector<TensorSource>& sources,
                                     std::int64_t n, DType dtype, std::uint64_t seed);

}  // namespace pp::profile
