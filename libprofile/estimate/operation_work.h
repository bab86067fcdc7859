// The kernels of one operation, forward and backward: products of matrices, attention and what only moves
// bytes, each by itself, because each reaches another share of a device's rates.
#pragma once

#include <vector>

#include "libprofile/core/ops/op_table.h"
#include "libprofile/estimate/device_spec.h"

namespace pp::profile {

/// Bytes that casts to a narrow type move.
struct Casts {
  double forward = 0;   ///< of the input; 0 where another product's cast serves it
  double backward = 0;  ///< of the output's gradient, for both products of it
};

/// An operation of one member of a tensor group, for one micro-batch.
struct OperationSize {
  OpWork work = {};      ///< what the op table says of it
  OpInside inside = {};  ///< of all samples
  bool loss = false;
  bool gradients_together = false;  ///< the weight gradient falls out of the input gradient
  bool aligned = true;              ///< rows of its weights are multiples of 16 bytes
  double flops = 0;                 ///< forward
  double weights = 0;               ///< elements
  double trained = 0;               ///< those of them that get a gradient
  double element = 4;               ///< bytes
  double in = 0, out = 0;           ///< bytes of inputs and outputs
  double kept = 0;                  ///< bytes of them that backward reads
  double gradient = 0;              ///< bytes of the gradients of its inputs that are needed
  bool passes = false;              ///< some input has a gradient
  double narrow = 0;  ///< bytes of a narrow product's factors per byte of `element`; 0: it is none
  Casts cast = {};
  bool full = false;  ///< a product in float32
};

std::vector<Work> forward_work(const OperationSize& size);
/// The part of it that is attention, without its projections.
std::vector<Work> attention_work(const OperationSize& size);
/// The gradients of its inputs, and of its weights where both come together.
std::vector<Work> input_gradient_work(const OperationSize& size);
std::vector<Work> weight_gradient_work(const OperationSize& size);

}  // namespace pp::profile
