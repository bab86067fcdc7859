// LibTorch's calls that take class numbers: cross_entropy_loss, and the forms of nll_loss.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "libprofile/core/model/aten_call.h"
#include "libprofile/core/tensor_type.h"

namespace pp {

struct LabelCall {
  int prediction = 0;  ///< the input with the classes
  int labels = 0;      ///< the input with the class numbers
  std::int64_t ignored = -100;
  bool mean = true;                            ///< the result is the mean over the labels that count
  std::optional<TensorArgument> weights = {};  ///< of the classes
  /// How many there are, of the call's inputs.
  std::int64_t classes(const std::vector<RowTensor>& inputs) const;
};

/// Nothing for another call, and where prediction or labels are no inputs of it.
std::optional<LabelCall> label_call(const AtenCall& call);

}  // namespace pp
