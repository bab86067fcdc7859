#include "libprofile/model/aten/convolution_call.h"

#include <string>
#include <vector>

#include "libprofile/model/ops/strided_convolution.h"

namespace pp::model::aten {
namespace {

/// The argument of this name, which the schema has.
c10::IValue& argument(const c10::FunctionSchema& schema, torch::jit::Stack& stack, const char* name) {
  return stack[static_cast<std::size_t>(*schema.argumentIndexWithName(name))];
}

std::vector<std::int64_t> numbers(const c10::FunctionSchema& schema, torch::jit::Stack& stack,
                                  const char* name) {
  const c10::IValue& value = argument(schema, stack, name);
  return value.isIntList() ? value.toIntVector() : std::vector<std::int64_t>{0};  // "valid" is no padding
}

bool is_transposed(const c10::FunctionSchema& schema, torch::jit::Stack& stack) {
  if (schema.name() == "aten::convolution") return argument(schema, stack, "transposed").toBool();
  return schema.name().starts_with("aten::conv_transpose");
}

bool is_convolution(const std::string& name) {
  return name == "aten::convolution" || name.starts_with("aten::conv_transpose") || name == "aten::conv1d" ||
         name == "aten::conv2d" || name == "aten::conv3d";
}

}  // namespace

bool keep_clear_of_overrun(const c10::FunctionSchema& schema, torch::jit::Stack& stack) {
  if (!is_convolution(schema.name())) return false;
  const at::Tensor x = stack[0].toTensor(), weight = stack[1].toTensor();
  const auto stride = numbers(schema, stack, "stride"), padding = numbers(schema, stack, "padding");
  if (!is_transposed(schema, stack)) {
    if (!ops::overruns(x, weight, stride, padding)) return false;
    stack[0] = ops::positions_read(x, weight, stride);
    argument(schema, stack, "stride") = std::vector<std::int64_t>(stride.size(), 1);
    return false;
  }
  const auto output_padding = numbers(schema, stack, "output_padding");
  const ops::TransposedConvolution convolution{stride, padding, output_padding,
                                               argument(schema, stack, "groups").toInt()};
  if (!ops::transposed_overruns(convolution, x, weight)) return false;
  const at::Tensor bias = stack[2].isTensor() ? stack[2].toTensor() : at::Tensor();
  stack = {ops::convolve_transposed(convolution, x, weight, bias)};
  return true;
}

}  // namespace pp::model::aten
