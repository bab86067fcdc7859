#include "tests/libprofile/model/op_cases.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>

#include "tests/libprofile/model/graph_builder.h"

namespace pp::model::test {
namespace {

TensorType real(Shape shape) { return {std::move(shape), DType::float64}; }

}  // namespace

std::vector<OpCase> op_cases() {
  const TensorType image = real({4, 6, 5});
  return {
      {"adaptive_avg_pool2d", {image}, {{"output_size", whole(3)}}},
      {"add", {real({3, 2}), real({3, 2})}, {}},
      {"add", {real({4}), real({4}), real({4})}, {}},
      {"add", {real({3, 1, 2}), real({1, 4, 2}), real({1, 1, 1})}, {}},
      {"additive_attention", {real({3, 4}), real({2, 5})}, {{"num_units", whole(6)}}},
      {"avg_pool2d", {image}, {{"kernel_size", whole(2)}}},
      {"avg_pool2d", {image}, {{"kernel_size", whole(3)}, {"stride", whole(2)}, {"padding", whole(1)}}},
      {"avg_pool2d",
       {image},
       {{"kernel_size", whole(3)},
        {"stride", whole(2)},
        {"padding", whole(1)},
        {"ceil_mode", true},
        {"count_include_pad", false}}},
      {"batch_norm1d", {real({4})}, {}},
      {"batch_norm1d", {real({4, 3})}, {}},
      {"batch_norm2d", {image}, {}},
      {"bias", {real({3, 4})}, {}},
      {"chunk", {real({3, 4})}, {{"chunks", whole(2)}, {"dim", whole(1)}}},
      {"concat", {real({2, 3, 3}), real({1, 3, 3})}, {}},
      {"concat", {real({3, 2}), real({3, 4})}, {{"dim", whole(1)}}},
      {"conv2d", {image}, {{"out_channels", whole(6)}, {"kernel_size", whole(3)}}},
      {"conv2d",
       {image},
       {{"out_channels", whole(2)},
        {"kernel_size", whole(3)},
        {"stride", whole(2)},
        {"padding", whole(1)},
        {"bias", false}}},
      {"conv2d", {image}, {{"out_channels", whole(4)}, {"kernel_size", whole(3)}, {"groups", whole(4)}}},
      {"conv2d", {image}, {{"out_channels", whole(6)}, {"kernel_size", whole(2)}, {"groups", whole(2)}}},
      {"conv2d",
       {image},
       {{"out_channels", whole(2)},
        {"kernel_size", whole(1)},
        {"kernel_width", whole(3)},
        {"stride", whole(2)},
        {"padding_width", whole(1)}}},
      {"conv1d", {real({4, 7})}, {{"out_channels", whole(6)}, {"kernel_size", whole(3)}, {"groups", whole(2)}}},
      {"conv1d",
       {real({3, 8})},
       {{"out_channels", whole(2)},
        {"kernel_size", whole(2)},
        {"stride", whole(2)},
        {"padding", whole(1)},
        {"dilation", whole(2)},
        {"bias", false}}},
      {"conv_transpose2d", {image}, {{"out_channels", whole(3)}, {"kernel_size", whole(2)}, {"bias", false}}},
      {"conv_transpose2d",
       {image},
       {{"out_channels", whole(6)},
        {"kernel_size", whole(3)},
        {"stride", whole(2)},
        {"padding", whole(1)},
        {"output_padding", whole(1)},
        {"groups", whole(2)}}},
      {"cross_attention", {real({3, 4}), real({5, 4})}, {{"num_heads", whole(2)}, {"dropout", 0.3}}},
      {"cross_attention",
       {real({3, 4}), real({2, 4})},
       {{"num_heads", whole(1)}, {"bias", false}, {"scaled", false}}},
      {"dropout", {real({5, 3})}, {{"p", 0.4}}},
      {"dropout2d", {image}, {{"p", 0.4}}},
      {"embedding", {{{7}, DType::int64}}, {{"num_embeddings", whole(5)}, {"embedding_dim", whole(3)}}},
      {"embedding",
       {{{7}, DType::int64}},
       {{"num_embeddings", whole(5)}, {"embedding_dim", whole(3)}, {"dropout", 0.4}}},
      {"flatten", {image}, {}},
      {"gated_activation", {real({3, 4}), real({3, 4})}, {}},
      {"gated_activation", {real({3, 4}), real({3, 4})}, {{"activation", std::string("gelu")}}},
      {"gated_activation", {real({3, 8})}, {{"activation", std::string("gelu_tanh")}}},
      {"gated_activation", {real({6})}, {{"activation", std::string("relu")}}},
      {"gelu", {real({9})}, {}},
      {"gelu", {real({9})}, {{"tanh", true}}},
      {"group_norm", {image}, {{"num_groups", whole(2)}}},
      {"grouped_query_attention",
       {real({5, 12}), real({5, 4}), real({5, 4})},
       {{"num_heads", whole(6)}, {"num_key_value_heads", whole(2)}, {"rotary_dim", whole(2)}}},
      {"grouped_query_attention",
       {real({4, 8}), real({4, 8}), real({4, 6})},
       {{"num_heads", whole(2)}, {"causal", false}, {"scale", 0.7}}},
      {"grouped_query_attention",
       {real({6, 8}), real({6, 4}), real({6, 4})},
       {{"num_heads", whole(2)},
        {"num_key_value_heads", whole(1)},
        {"norms", true},
        {"rotary_dim", whole(4)},
        {"rotary_scaling", std::string("llama3")},
        {"rotary_factor", 4.0},
        {"rotary_original_length", whole(16)}}},
      {"grouped_query_attention",
       {real({5, 16})},
       {{"num_heads", whole(2)},
        {"num_key_value_heads", whole(1)},
        {"rotary_dim", whole(2)},
        {"sliding_window", whole(3)}}},
      {"grouped_query_attention",
       {real({5, 24})},
       {{"num_heads", whole(2)},
        {"packing", std::string("heads")},
        {"norms", true},
        {"rotary_dim", whole(4)},
        {"rotary_interleaved", true},
        {"rotary_scaling", std::string("yarn")},
        {"rotary_factor", 2.0},
        {"rotary_original_length", whole(32)}}},
      {"grouped_query_attention",
       {real({5, 8}), real({5, 4}), real({5, 4})},
       {{"num_heads", whole(4)},
        {"num_key_value_heads", whole(2)},
        {"soft_cap", 1.5},
        {"sliding_window", whole(2)},
        {"rotary_dim", whole(2)},
        {"rotary_scaling", std::string("linear")},
        {"rotary_factor", 3.0}}},
      {"grouped_query_attention",
       {real({4, 8}), real({4, 8}), real({4, 8})},
       {{"num_heads", whole(4)}, {"dropout", 0.3}}},
      {"grouped_query_attention",
       {real({5, 12}), real({5, 14}), real({5, 2})},
       {{"num_heads", whole(2)},
        {"packing", std::string("latent")},
        {"rotary_dim", whole(2)},
        {"rotary_interleaved", true}}},
      {"grouped_query_attention",
       {real({4, 8}), real({4, 6}), real({4, 2})},
       {{"num_heads", whole(2)},
        {"packing", std::string("latent")},
        {"rotary_dim", whole(2)},
        {"scale", 0.7},
        {"dropout", 0.3}}},
      {"hardsigmoid", {real({9})}, {}},
      {"hardswish", {real({9})}, {}},
      {"instance_norm2d", {image}, {}},
      {"layer_norm", {real({3, 8})}, {}},
      {"leaky_relu", {real({3, 4})}, {{"negative_slope", 0.2}}},
      {"linear", {real({5})}, {{"out_features", whole(3)}}},
      {"linear", {real({4, 5})}, {{"out_features", whole(2)}, {"bias", false}}},
      {"local_response_norm", {image}, {{"size", whole(3)}, {"alpha", 0.5}, {"k", 2.0}}},
      {"local_response_norm", {image}, {{"size", whole(2)}, {"alpha", 0.5}}},
      {"locked_dropout", {real({4, 3})}, {{"p", 0.4}}},
      {"lstm", {real({4, 3})}, {{"hidden_size", whole(2)}}},
      {"lstm",
       {real({3, 2})},
       {{"hidden_size", whole(2)},
        {"num_layers", whole(2)},
        {"bidirectional", true},
        {"dropout", 0.3},
        {"weight_dropout", 0.3}}},
      {"lstm", {real({3, 2})}, {{"hidden_size", whole(2)}, {"num_layers", whole(2)}, {"bias", false}}},
      {"matmul", {real({2, 3, 4}), real({2, 4, 5})}, {}},
      {"max_pool2d", {image}, {{"kernel_size", whole(2)}}},
      {"max_pool2d", {image}, {{"kernel_size", whole(3)}, {"stride", whole(2)}, {"padding", whole(1)}}},
      {"max_pool2d", {image}, {{"kernel_size", whole(3)}, {"stride", whole(2)}, {"ceil_mode", true}}},
      {"mean", {real({3, 4})}, {}},
      {"mean", {image}, {{"dim", whole(1)}}},
      {"mixture_of_experts",
       {real({3, 4})},
       {{"num_experts", whole(3)}, {"experts_per_token", whole(2)}, {"hidden", whole(5)}}},
      {"mixture_of_experts",  // more experts than positions
       {real({4})},
       {{"num_experts", whole(7)},
        {"experts_per_token", whole(1)},
        {"hidden", whole(2)},
        {"activation", std::string("gelu")},
        {"normalised", false}}},
      {"mixture_of_experts",
       {real({4, 3})},
       {{"num_experts", whole(6)},
        {"experts_per_token", whole(3)},
        {"hidden", whole(4)},
        {"scores", std::string("sigmoid")},
        {"factor", 2.5},
        {"groups", whole(3)},
        {"groups_per_token", whole(2)},
        {"correction", true}}},
      {"mixture_of_experts",
       {real({4, 3})},
       {{"num_experts", whole(6)},
        {"experts_per_token", whole(2)},
        {"hidden", whole(2)},
        {"normalised", false},
        {"groups", whole(2)},
        {"tensors", std::string("w1")}}},
      {"multi_head_attention", {real({5, 8})}, {{"num_heads", whole(2)}}},
      {"multi_head_attention", {real({4, 6})}, {{"num_heads", whole(3)}, {"causal", true}, {"dropout", 0.3}}},
      {"multi_head_attention", {real({3, 4})}, {{"num_heads", whole(2)}, {"bias", false}}},
      {"multi_head_attention", {real({5, 4}), real({8, 2})}, {{"num_heads", whole(2)}, {"scaled", false}}},
      {"multi_head_attention",
       {real({6, 4}), real({4, 2})},
       {{"num_heads", whole(2)}, {"causal", true}, {"max_distance", whole(5)}}},
      {"multiply", {real({3, 2}), real({3, 2}), real({3, 2})}, {}},
      {"pad", {image}, {{"dim", whole(1)}, {"before", whole(-2)}, {"after", whole(1)}}},
      {"permute", {real({2, 3, 4})}, {{"dims", std::vector<std::int64_t>{2, 0, 1}}}},
      {"position_embedding", {real({3, 4})}, {}},
      {"position_embedding", {real({3, 4})}, {{"num_embeddings", whole(9)}, {"offset", whole(2)}}},
      {"position_encoding", {real({3, 4})}, {}},
      {"relative_position_bias", {{{7}, DType::int64}}, {{"num_heads", whole(3)}, {"num_buckets", whole(4)}}},
      {"relu", {real({3, 4})}, {}},
      {"relu6", {real({3, 4})}, {}},
      {"reshape", {real({4, 6})}, {{"shape", std::vector<std::int64_t>{2, -1, 3}}}},
      {"rms_norm", {real({3, 8})}, {}},
      {"rms_norm", {real({3, 8})}, {{"eps", 0.1}, {"offset", 1.0}}},
      {"scale", {real({3, 4})}, {{"factor", -1.5}, {"offset", 0.5}}},
      {"scaled_dot_product_attention", {real({2, 3, 4}), real({2, 5, 4}), real({2, 5, 6})}, {{"dropout", 0.3}}},
      {"scaled_dot_product_attention", {real({4, 3}), real({4, 3}), real({4, 2})}, {{"causal", true}}},
      {"sigmoid", {real({7})}, {}},
      {"silu", {real({7})}, {}},
      {"slice",
       {real({3, 7})},
       {{"dim", whole(1)}, {"start", whole(1)}, {"end", whole(6)}, {"step", whole(2)}}},
      {"soft_cap", {real({2, 6})}, {{"cap", 0.8}}},
      {"softmax", {real({2, 6})}, {}},
      {"stochastic_depth", {real({3, 2})}, {{"p", 0.4}}},
      {"tanh", {real({7})}, {}},
      {"upsample_bilinear2d", {image}, {}},
      {"upsample_bilinear2d", {image}, {{"scale_factor", whole(3)}, {"align_corners", true}}},
      {"upsample_nearest2d", {image}, {{"scale_factor", whole(3)}}},
  };
}

std::string to_text(const OpCase& op_case) {
  std::string text = op_case.op;
  for (const TensorType& input : op_case.inputs) text.append(" ").append(pp::to_text(input.shape));
  for (const auto& [name, value] : op_case.attributes) text.append(" ").append(name);
  return text;
}

Attributes complete(std::string_view op, const Attributes& given) {
  return complete_attributes(*find_op(op), given, "/attributes");
}

Tensors OpInstance::operator()(Tensors* saved) const {
  auto generator = at::make_generator<at::CPUGeneratorImpl>();
  LayerContext context{.key = {.seed = 3}, .layer = 1, .generator = &generator, .buffers = {}};
  context.saved = saved;
  return forward(inputs, weights, context);
}

OpInstance instantiate(const OpCase& op_case, std::int64_t samples) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(17);
  const auto draw = [&](Shape shape, DType dtype) {
    if (dtype == DType::int64) return at::empty(shape, at::kLong).random_(0, 5, generator);
    return at::empty(shape, at::kDouble).normal_(0, 1, generator);
  };
  const Attributes attributes = complete(op_case.op, op_case.attributes);
  OpInstance instance{.forward = bind_layer(op_case.op, attributes).forward,
                      .inferred = find_op(op_case.op)->infer(attributes, op_case.inputs),
                      .inputs = {},
                      .weights = {}};
  for (const TensorType& input : op_case.inputs) {
    Shape shape{samples};
    shape.insert(shape.end(), input.shape.begin(), input.shape.end());
    instance.inputs.push_back(draw(std::move(shape), input.dtype));
  }
  for (const ParameterSpec& parameter : instance.inferred.parameters) {
    instance.weights.push_back(draw(parameter.shape, DType::float64));
  }
  return instance;
}

}  // namespace pp::model::test
