// The row of layers that only have edges and sizes: another planner's graph.
#include <limits>

#include "libprofile/core/ops/rows.h"

namespace pp::detail {
namespace {

OpResult infer_opaque(const Attributes& attributes, std::span<const TensorType>) {
  return {{{{integer(attributes, "output_bytes")}, DType::uint8}}, {}, {}, {}};
}

}  // namespace

std::vector<OpRow> opaque_ops() {
  constexpr int kMany = std::numeric_limits<int>::max();
  constexpr double kMaxBytes = 1LL << 40;
  return {
      {.name = kOpaqueOp,
       .summary = "a layer of another planner's graph, not runnable",
       .shapes = "any number -> output_bytes bytes; a layer of another planner's graph, never runnable",
       .flops = "0",
       .min_inputs = 0,
       .max_inputs = kMany,
       .input = kAny,
       .attributes = {integer_attribute("output_bytes", 0, 0, kMaxBytes, "bytes of the output per sample")},
       .runnable = false,
       .work = {.kind = OpWork::Kind::unknown},
       .infer = infer_opaque},
  };
}

}  // namespace pp::detail
