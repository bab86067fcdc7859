// The row of the learned bias of relative positions.
#include <string>

#include "libprofile/core/ops/rows.h"

namespace pp::detail {
namespace {

OpResult infer_relative_position_bias(const Attributes& attributes, std::span<const TensorType> inputs) {
  if (inputs[0].dtype != DType::int64) refuse_input(0, inputs[0], "int64, such as the model's tokens");
  const std::int64_t buckets = integer(attributes, "num_buckets");
  if (buckets % 4 != 0)
    throw Error(ErrorKind::data, "num_buckets " + std::to_string(buckets) + " must be a multiple of 4");
  const Shape table{buckets, integer(attributes, "num_heads")};
  return {{{table, DType::float32}}, {{"weight", table}}, {}, {}};
}

}  // namespace

std::vector<OpRow> relative_position_ops() {
  return {
      {.name = "relative_position_bias",
       .summary = "learned bias per bucket of relative positions and head",
       .shapes = "int64 [...] -> [num_buckets, num_heads], the learned table for each sample",
       .flops = "0",
       .attributes = {required_integer("num_heads", 1, kMaxSize, "heads of the attention"),
                      integer_attribute("num_buckets", 32, 4, kMaxSize,
                                        "buckets of relative positions, a multiple of 4")},
       .infer = infer_relative_position_bias},
  };
}

}  // namespace pp::detail
