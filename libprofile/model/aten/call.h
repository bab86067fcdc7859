// A call of one of LibTorch's operations as the forward of a node: through the dispatcher, with autograd and
// autocast as in any other layer.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "libprofile/core/model/aten_call.h"
#include "libprofile/model/aten/constants.h"
#include "libprofile/model/ops.h"

namespace pp::model::aten {

struct BoundCall {
  Forward forward;
  std::shared_ptr<Constants> constants;                     ///< what the forward holds from pass to pass
  std::function<void(std::vector<at::Tensor>&)> held = {};  ///< the same of an operation of the table
  bool deterministic = true;                                ///< BoundLayer::deterministic
};

/// Inputs, weights, buffers as the call lists them. Outputs are compared with what the call says of them; a
/// floating one gets the type of the run, or float32 if the call is precise. `inputs`: the types of the inputs.
/// Throws pp::Error (data) for what cannot be called (call_schema.h), and when LibTorch knows beforehand that
/// the shapes will be others.
BoundCall bind_call(const AtenCall& call, std::span<const RowTensor> inputs);

/// Of a precise call's floating tensors, in a run of type `run`.
at::ScalarType precise_type(at::ScalarType run);

}  // namespace pp::model::aten
