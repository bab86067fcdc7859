// Square norms that do not depend on who holds which part of a gradient: by blocks of a fixed length.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

namespace pp::run {

/// Elements of a block, counted from the beginning of a parameter in the order of memory; the last one may have
/// fewer.
inline constexpr std::int64_t kNormBlock = 256;

/// Of each tensor the sums of squares of its blocks, in float64. Tensors are dense. A block's sum depends on
/// its own elements alone, so those of a part that begins with a block are those of the whole. One transfer for
/// all tensors of a GPU.
std::vector<std::vector<double>> block_squares(std::span<const at::Tensor> tensors);

}  // namespace pp::run
