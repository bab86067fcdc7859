// A call of one of LibTorch's operations as the forward of a node: through the dispatcher, with autograd and
// autocast as in any other layer. Its constants are made once per device and type of the run.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>

#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "libprofile/core/model/aten_call.h"
#include "libprofile/model/ops.h"

namespace pp::model::aten {

/// Thread-safe. What it hands out lives as long as it does.
class Constants {
 public:
  explicit Constants(std::vector<AtenConstant> constants) : constants_(std::move(constants)) {}

  /// `dtype`: of the floating ones.
  const std::vector<at::Tensor>& on(const at::Device& device, at::ScalarType dtype);
  /// Adds all that has been made for devices.
  void collect(std::vector<at::Tensor>& tensors);

 private:
  struct Made {
    at::Device device;
    at::ScalarType dtype;
    std::vector<at::Tensor> tensors;
  };
  std::vector<AtenConstant> constants_;
  std::mutex mutex_;
  std::list<Made> made_;
};

struct BoundCall {
  Forward forward;
  std::shared_ptr<Constants> constants;                     ///< what the forward holds from pass to pass
  std::function<void(std::vector<at::Tensor>&)> held = {};  ///< the same of an operation of the table
  bool deterministic = true;                                ///< BoundLayer::deterministic
};

/// Inputs, weights, buffers as the call lists them. Outputs are compared with what the call says of them; a
/// floating one gets the type of the run, or float32 if the call is precise. `inputs`: the types of the inputs.
/// Throws pp::Error (data) for what cannot be called (call_checks.h), and when LibTorch knows beforehand that
/// the shapes will be others.
BoundCall bind_call(const AtenCall& call, std::span<const RowTensor> inputs);

/// Of a precise call's floating tensors, in a run of type `run`.
at::ScalarType precise_type(at::ScalarType run);

/// `stack` holds the arguments of a call of `schema`. Changes those of a convolution that would overrun so that
/// it does not; of a transposed one puts the result in their place and returns true.
bool keep_clear_of_overrun(const c10::FunctionSchema& schema, torch::jit::Stack& stack);

}  // namespace pp::model::aten
