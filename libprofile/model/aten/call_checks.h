// Whether a model may call an operation of LibTorch: it exists, has no effects, draws nothing, and its
// shapes do not depend on data. A rehearsal on tensors without memory finds shapes that are not the recorded
// ones; what a call returns is compared with what the model says.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <span>

#include "libprofile/core/model/aten_call.h"
#include "libprofile/model/aten/call_arguments.h"
#include "libprofile/model/ops.h"

namespace pp::model::aten {

/// The operation behind `aten::add.Tensor`. Throws pp::Error (data) with the reason when a model may not call
/// it. `inputs`: of the call.
c10::OperatorHandle find_operation(const AtenCall& call, std::span<const RowTensor> inputs);

/// The element type of the tensor that an argument names.
DType dtype_of(const AtenCall& call, std::span<const RowTensor> inputs, const TensorArgument& argument);

/// The results that a call left on the stack, lists of tensors one by one. Empties the stack.
Tensors tensors_of(torch::jit::Stack& stack);

/// `[64 b, 49, 96]`, of a record; b are the samples.
std::string to_text(const RowTensor& record);

/// Throws pp::Error (run) unless there are as many as `recorded`, dense, with these shapes and types; floating
/// types count as one.
void check_outputs(std::span<const RowTensor> recorded, std::int64_t samples, TensorSpan found);

/// Calls it on tensors without memory, before any run. Throws pp::Error (data) for shapes that are not the
/// recorded ones, and for more memory than the model says. LibTorch cannot tell the shapes of some operations;
/// none of them makes more than its integers say, so these have a limit.
void rehearse(const AtenCall& call, std::span<const RowTensor> inputs, const c10::OperatorHandle& operation,
              const Arguments& arguments);

}  // namespace pp::model::aten
