#include "libprofile/core/tensor_type.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace pp {
namespace {

constexpr std::int64_t kMaxElements = std::int64_t{1} << 40;

}  // namespace

std::int64_t element_count(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

bool too_large(const Shape& shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) {
    if (size > kMaxElements / count) return true;
    count *= std::max<std::int64_t>(size, 1);
  }
  return false;
}

Shape full_shape(const RowTensor& tensor, std::int64_t samples) {
  Shape shape = tensor.type.shape;
  if (tensor.rows > 0) shape.insert(shape.begin() + tensor.batch_dim, tensor.rows * samples);
  return shape;
}

Bytes bytes_of(const TensorType& type) { return Bytes(element_count(type.shape) * size_of(type.dtype)); }

std::string to_text(const Shape& shape) {
  std::string text = "[";
  for (const std::int64_t size : shape) text.append(text.size() == 1 ? "" : ", ").append(std::to_string(size));
  return text + "]";
}

}  // namespace pp
