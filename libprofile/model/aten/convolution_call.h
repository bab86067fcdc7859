// Calls of convolutions that oneDNN must not compute as they are (ops/strided_convolution.h).
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>

namespace pp::model::aten {

/// `stack` holds the arguments of a call of `schema`. Changes those of a convolution that would overrun so that
/// it does not; of a transposed one puts the result in their place and returns true.
bool keep_clear_of_overrun(const c10::FunctionSchema& schema, torch::jit::Stack& stack);

}  // namespace pp::model::aten
