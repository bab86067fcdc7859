// Sizes as a GPU's tensor cores want them. cuBLAS has fast kernels for half types where sides are multiples of
// eight and rows begin at multiples of 16 bytes; a vocabulary of 50,257 has neither.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace pp::model::ops {

/// How many columns a matrix [rows, columns] of this type and device lacks to the next such side; 0 also where
/// a copy would cost more than it brings.
std::int64_t missing_columns(std::int64_t rows, std::int64_t columns, const at::TensorOptions& options);

/// With `more` columns or rows of zeros behind the others; 0: `matrix` itself.
at::Tensor with_columns(const at::Tensor& matrix, std::int64_t more);
at::Tensor with_rows(const at::Tensor& matrix, std::int64_t more);

}  // namespace pp::model::ops
