// The arguments of a call, checked against the operation's schema once and pushed at every call.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "libprofile/core/model/aten_call.h"
#include "libprofile/model/ops.h"

namespace pp::model::aten {

/// What a call is made with.
struct Frame {
  TensorSpan inputs, parameters, buffers, constants;
  std::int64_t samples = 0;
  at::ScalarType dtype = at::kFloat;  ///< of the run's floating tensors
  at::Device device = at::kCPU;
};

/// In the order of the schema.
class Arguments {
 public:
  /// Throws pp::Error (data): an argument that the schema does not have, one that is missing, one of another
  /// type.
  Arguments(const AtenCall& call, const c10::FunctionSchema& schema);

  void push(const Frame& frame, torch::jit::Stack& stack) const;
  /// The largest integer that stands where a size may stand.
  std::int64_t largest_integer() const { return largest_integer_; }

 private:
  struct Device {};
  struct FloatType {};  ///< the run's
  struct List;
  using Slot = std::variant<c10::IValue, TensorArgument, BatchInteger, Device, FloatType, List>;
  struct List {
    c10::TypePtr element;
    std::vector<Slot> slots;
  };

  Slot bind(const AtenValue& value, const c10::TypePtr& type, const c10::Argument& argument);
  Slot bind_list(const AtenValue& value, const c10::TypePtr& element, const c10::Argument& argument);
  Slot bind_integer(const AtenValue& value, const c10::Argument& argument);
  void note(std::int64_t value, const c10::Argument& argument);
  static c10::IValue value_of(const Slot& slot, const Frame& frame);
  static c10::IValue list_of(const List& list, const Frame& frame);

  std::vector<Slot> slots_;
  std::int64_t largest_integer_ = 0;
};

}  // namespace pp::model::aten
