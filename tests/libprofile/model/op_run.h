// One forward function by hand, for tests that compare it with the torch.nn module of the same name.
#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>
#include <vector>

#include "libprofile/core/ops/op_table.h"
#include "libprofile/model/ops.h"
#include "tests/libprofile/model/op_cases.h"

namespace pp::model::test {

/// The first output; `attributes` are completed with the op's defaults.
inline at::Tensor run(std::string_view op, const Attributes& attributes, std::vector<at::Tensor> inputs,
                      std::vector<at::Tensor> weights = {}, LayerContext context = {}) {
  return bind_layer(op, complete(op, attributes)).forward(inputs, weights, context)[0];
}

/// The module's parameters in float64, in the module's order.
template <class Module>
std::vector<at::Tensor> parameters_of(Module& module) {
  module->to(at::kDouble);
  return module->parameters();
}

/// `attributes` are completed, too.
inline at::Tensor loss(std::string_view op, const at::Tensor& prediction, const at::Tensor& target,
                       const Attributes& attributes = {}) {
  LayerContext context;
  const Attributes all = complete_attributes(*find_loss(op), attributes, "/attributes");
  return bind_loss(op, all).forward(Tensors{prediction, target}, {}, context)[0];
}

inline bool close(const at::Tensor& a, const at::Tensor& b) { return a.allclose(b, 1e-12, 1e-12); }

}  // namespace pp::model::test
