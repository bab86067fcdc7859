#include <algorithm>
#include <array>

#include "libprofile/core/error.h"
#include "libprofile/model/ops/forward.h"

namespace pp::model {
namespace ops {
namespace {

constexpr std::array kTable{
    Row{"adaptive_avg_pool2d", adaptive_avg_pool2d},
    Row{"add", add},
    Row{"additive_attention", additive_attention, initialise_additive_attention},
    Row{"avg_pool2d", avg_pool2d},
    Row{"batch_norm1d", batch_norm1d, initialise_norm, WeightGradient::with_input},
    Row{"batch_norm2d", batch_norm2d, initialise_norm, WeightGradient::with_input},
    Row{"bias", bias, initialise_zero},
    Row{"chunk", chunk},
    Row{"concat", concat},
    Row{"conv1d", conv1d, initialise_by_fan_in},
    Row{"conv2d", conv2d, initialise_by_fan_in},
    Row{"conv_transpose2d", conv_transpose2d, initialise_by_fan_in},
    Row{"cross_attention", cross_attention, initialise_attention},
    Row{"dropout", dropout},
    Row{"dropout2d", dropout2d},
    Row{"embedding", embedding, initialise_normal},
    Row{"flatten", flatten},
    Row{"gelu", gelu},
    Row{"group_norm", group_norm, initialise_norm, WeightGradient::with_input},
    Row{"hardsigmoid", hardsigmoid},
    Row{"hardswish", hardswish},
    Row{"instance_norm2d", instance_norm2d},
    Row{"layer_norm", layer_norm, initialise_norm, WeightGradient::with_input},
    Row{"leaky_relu", leaky_relu},
    Row{"linear", linear, initialise_by_fan_in, WeightGradient::separate, linear_backward},
    Row{"local_response_norm", local_response_norm},
    Row{"locked_dropout", locked_dropout},
    Row{"lstm", lstm, initialise_lstm, WeightGradient::with_input},
    Row{"matmul", matmul},
    Row{"max_pool2d", max_pool2d},
    Row{"mean", mean},
    Row{"multi_head_attention", multi_head_attention, initialise_attention},
    Row{"multiply", multiply},
    Row{"pad", pad},
    Row{"permute", permute},
    Row{"position_embedding", position_embedding, initialise_normal},
    Row{"position_encoding", position_encoding},
    Row{"relative_position_bias", relative_position_bias, initialise_normal},
    Row{.name = "relu", .bind = relu, .backward = relu_backward},
    Row{"relu6", relu6},
    Row{"reshape", reshape},
    Row{"rms_norm", rms_norm, initialise_norm, WeightGradient::with_input},
    Row{"scale", scale},
    Row{"scaled_dot_product_attention", scaled_dot_product_attention},
    Row{"sigmoid", sigmoid},
    Row{"silu", silu},
    Row{"slice", slice},
    Row{"softmax", softmax},
    Row{"stochastic_depth", stochastic_depth},
    Row{"tanh", tanh},
    Row{"upsample_bilinear2d", upsample_bilinear2d},
    Row{"upsample_nearest2d", upsample_nearest2d},
};

}  // namespace

std::span<const Row> table() { return kTable; }

const Row* find(std::string_view name) {
  const auto row = std::find_if(kTable.begin(), kTable.end(), [&](const Row& r) { return r.name == name; });
  return row == kTable.end() ? nullptr : &*row;
}

}  // namespace ops

BoundLayer bind_layer(std::string_view op, const Attributes& attributes) {
  const ops::Row* row = ops::find(op);
  if (row == nullptr) throw Error(ErrorKind::data, "this operation can be planned, but not run");
  BoundLayer layer{row->bind(attributes), row->weight_gradient};
  if (row->backward != nullptr) layer.backward = row->backward(attributes);
  return layer;
}

std::vector<std::string_view> runnable_ops() {
  std::vector<std::string_view> names;
  for (const ops::Row& row : ops::table()) names.push_back(row.name);
  return names;
}

}  // namespace pp::model
