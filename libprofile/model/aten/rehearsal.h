// A call on tensors without memory, before any run: shapes that are not the recorded ones are found, and
// nothing is asked for that the model does not say.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <span>

#include "libprofile/core/model/aten_call.h"
#include "libprofile/model/aten/call_arguments.h"

namespace pp::model::aten {

/// Throws pp::Error (data). LibTorch cannot tell the shapes of some operations; none of them makes more than
/// its integers say, so these have a limit.
void rehearse(const AtenCall& call, std::span<const RowTensor> inputs, const c10::OperatorHandle& operation,
              const Arguments& arguments);

}  // namespace pp::model::aten
