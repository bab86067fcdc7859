// What a row of the op table says, for tests that compute it by hand.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "libprofile/core/ops/op_table.h"
#include "tests/libprofile/core/error_text.h"

namespace pp::test {

using Specs = std::vector<ParameterSpec>;

inline Attribute whole(std::int64_t value) { return value; }
inline TensorType real(Shape shape) { return {std::move(shape), DType::float32}; }
inline TensorType index_type(Shape shape) { return {std::move(shape), DType::int64}; }

/// Of an op or a loss.
inline OpResult infer(std::string_view name, const Attributes& given, const std::vector<TensorType>& inputs) {
  const OpRow& row = find_op(name) != nullptr ? *find_op(name) : *find_loss(name);
  return row.result(complete_attributes(row, given, ""), inputs);
}
inline std::string refused(std::string_view name, const Attributes& given,
                           const std::vector<TensorType>& inputs) {
  return error_text([&] { return infer(name, given, inputs); });
}
inline Shape out(const OpResult& result) { return result.outputs.at(0).shape; }

}  // namespace pp::test
