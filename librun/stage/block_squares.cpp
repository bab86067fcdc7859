#include "librun/stage/block_squares.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>

namespace pp::run {

namespace {

at::Tensor in_memory_order(const at::Tensor& tensor) {
  return tensor.as_strided({tensor.numel()}, {1}, tensor.storage_offset());
}

// Eight sums side by side, as a core's vectors like it, then those from the first to the last.
template <class Element>
double square_sum(const Element* values, std::int64_t count) {
  constexpr std::int64_t kLanes = 8;
  std::array<double, kLanes> lanes{};
  for (std::int64_t i = 0; i < count; ++i) {
    const auto value = static_cast<double>(values[i]);
    lanes[static_cast<std::size_t>(i % kLanes)] += value * value;
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

std::vector<double> squares_on_cpu(const at::Tensor& tensor) {
  const at::Tensor flat = in_memory_order(tensor);
  std::vector<double> sums;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, flat.scalar_type(), "block_squares", [&] {
    const scalar_t* const values = flat.const_data_ptr<scalar_t>();
    for (std::int64_t begin = 0; begin < flat.numel(); begin += kNormBlock)
      sums.push_back(square_sum(values + begin, std::min(kNormBlock, flat.numel() - begin)));
  });
  return sums;
}

// A kernel's order of additions may follow from the number of rows, so that is always the same.
at::Tensor squares_on_device(const at::Tensor& tensor) {
  constexpr std::int64_t kRows = 4096;
  const at::Tensor flat = in_memory_order(tensor);
  std::vector<at::Tensor> sums;
  for (std::int64_t begin = 0; begin < flat.numel(); begin += kRows * kNormBlock) {
    const std::int64_t count = std::min(kRows * kNormBlock, flat.numel() - begin);
    const at::Tensor rows = at::zeros({kRows, kNormBlock}, flat.options());
    rows.view(-1).narrow(0, 0, count).copy_(flat.narrow(0, begin, count));
    const at::Tensor norms = at::linalg_vector_norm(rows, 2, at::IntArrayRef{1}, false, at::kDouble);
    sums.push_back(norms.square().narrow(0, 0, (count + kNormBlock - 1) / kNormBlock));
  }
  return at::cat(sums);
}

}  // namespace

std::vector<std::vector<double>> block_squares(std::span<const at::Tensor> tensors) {
  std::vector<std::vector<double>> result;
  if (tensors.empty()) return result;
  if (tensors.front().is_cpu()) {
    for (const at::Tensor& tensor : tensors) result.push_back(squares_on_cpu(tensor));
    return result;
  }
  std::vector<at::Tensor> on_device;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() > 0) on_device.push_back(squares_on_device(tensor));
  }
  const at::Tensor all = on_device.empty() ? at::zeros({0}, at::kDouble) : at::cat(on_device).cpu();
  const double* next = all.const_data_ptr<double>();
  for (const at::Tensor& tensor : tensors) {
    const std::int64_t blocks = (tensor.numel() + kNormBlock - 1) / kNormBlock;
    result.emplace_back(next, next + blocks);
    next += blocks;
  }
  return result;
}

}  // namespace pp::run
