#include "libprofile/model/ops/aligned_sides.h"

#include <ATen/ops/constant_pad_nd.h>

namespace pp::model::ops {
namespace {

constexpr std::int64_t kSide = 8;
constexpr std::int64_t kLeastElements = 1 << 18;  // below, a launch more costs more than a slow kernel

}  // namespace

std::int64_t missing_columns(std::int64_t rows, std::int64_t columns, const at::TensorOptions& options) {
  if (!options.device().is_cuda() || options.dtype().itemsize() != 2 || rows * columns < kLeastElements)
    return 0;
  return (kSide - columns % kSide) % kSide;
}

at::Tensor with_columns(const at::Tensor& matrix, std::int64_t more) {
  return more == 0 ? matrix : at::constant_pad_nd(matrix, {0, more});
}
at::Tensor with_rows(const at::Tensor& matrix, std::int64_t more) {
  return more == 0 ? matrix : at::constant_pad_nd(matrix, {0, 0, 0, more});
}

}  // namespace pp::model::ops
