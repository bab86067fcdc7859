// The operation of a key by itself, on tensors of its own: to time its kernels, and to test them.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "libprofile/core/kernel_choice.h"

namespace pp::model {

struct KernelCall {
  /// left, right, and a bias or what is there before; x, weight, and of gradients the output's.
  std::vector<at::Tensor> inputs;
  /// Runs the operation as layers do, by the kernel that the thread's scope chooses (UseKernels). Writes over
  /// no input but the last of product_into and product_added.
  std::function<at::Tensor()> run;
};

/// Drawn from N(0, 1), a CPU's, from `generator`.
KernelCall make_call(const KernelKey& key, const at::Generator& generator);

}  // namespace pp::model
