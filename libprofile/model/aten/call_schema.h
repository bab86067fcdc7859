// Whether a model may call an operation of LibTorch: it exists, has no effects, draws nothing, and its shapes
// do not depend on data.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <span>

#include "libprofile/core/model/aten_call.h"

namespace pp::model::aten {

/// The operation behind `aten::add.Tensor`. Throws pp::Error (data) with the reason when a model may not call
/// it. `inputs`: of the call.
c10::OperatorHandle find_operation(const AtenCall& call, std::span<const RowTensor> inputs);

/// The element type of the tensor that an argument names.
DType dtype_of(const AtenCall& call, std::span<const RowTensor> inputs, const TensorArgument& argument);

}  // namespace pp::model::aten
