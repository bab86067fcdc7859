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

std::string_view name_of(const RunType& type) {
  return type.products ? name_of(*type.products) : name_of(type.dtype);
}

std::vector<std::string> run_type_names() {
  std::vector<std::string> names;
  for (const auto& [type, name] : EnumNames<DType>::table)
    if (is_floating(type)) names.emplace_back(name);
  for (const std::string& name : all_names<NarrowType>()) names.push_back(name);
  return names;
}

RunType parse_run_type(std::string_view name, std::string_view what, ErrorKind kind) {
  if (const auto narrow = find_enum<NarrowType>(name)) return *narrow;
  const auto type = find_enum<DType>(name);
  if (type && is_floating(*type)) return *type;
  throw Error(kind, std::string(what) + ": " + unknown_name(name, run_type_names()));
}

Bytes bytes_of(const TensorType& type) { return Bytes(element_count(type.shape) * size_of(type.dtype)); }

std::string to_text(const Shape& shape) {
  std::string text = "[";
  for (const std::int64_t size : shape) text.append(text.size() == 1 ? "" : ", ").append(std::to_string(size));
  return text + "]";
}

}  // namespace pp
