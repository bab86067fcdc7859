// What a call returned, beside what the model says that it returns.
#pragma once

#include <ATen/core/stack.h>

#include <span>

#include "libprofile/core/model/aten_call.h"
#include "libprofile/model/ops.h"

namespace pp::model::aten {

/// The results that a call left on the stack, lists of tensors one by one. Empties the stack.
Tensors tensors_of(torch::jit::Stack& stack);

/// `[64 b, 49, 96]`, of a record; b are the samples.
std::string to_text(const RowTensor& record);

/// Throws pp::Error (run) unless there are as many as `recorded`, dense, with these shapes and types; floating
/// types count as one.
void check_outputs(std::span<const RowTensor> recorded, std::int64_t samples, TensorSpan found);

}  // namespace pp::model::aten
