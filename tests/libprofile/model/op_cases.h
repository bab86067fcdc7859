// The examples of every op (OpRow::examples), for tests that hold for all of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "libprofile/core/ops/op_table.h"
#include "libprofile/model/ops.h"

namespace pp::model::test {

struct OpCase {
  std::string op;
  std::vector<TensorType> inputs;  ///< per sample
  Attributes attributes;           ///< those that differ from the default
};

/// In the order of the table.
std::vector<OpCase> op_cases();
std::string to_text(const OpCase& op_case);

/// `given`, and the op's defaults for the rest.
Attributes complete(std::string_view op, const Attributes& given);

/// An op with random float64 parameters and inputs of `samples` samples.
struct OpInstance {
  Forward forward;
  OpResult inferred;
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> weights;

  /// In training mode, with the same random draws at every call. `saved`: as LayerContext's.
  Tensors operator()(Tensors* saved = nullptr) const;
};
OpInstance instantiate(const OpCase& op_case, std::int64_t samples);

}  // namespace pp::model::test
