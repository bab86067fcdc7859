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
      {"avg_pool2d", {image}, {{"kernel_size", whole(2)}}},
      {"avg_pool2d", {image}, {{"kernel_size", whole(3)}, {"stride", whole(2)}, {"padding", whole(1)}}},
      {"batch_norm2d", {image}, {}},
      {"concat", {real({2, 3, 3}), real({1, 3, 3})}, {}},
      {"conv2d", {image}, {{"out_channels", whole(6)}, {"kernel_size", whole(3)}}},
      {"conv2d",
       {image},
       {{"out_channels", whole(2)},
        {"kernel_size", whole(3)},
        {"stride", whole(2)},
        {"padding", whole(1)},
        {"bias", false}}},
      {"dropout", {real({5, 3})}, {{"p", 0.4}}},
      {"embedding", {{{7}, DType::int64}}, {{"num_embeddings", whole(5)}, {"embedding_dim", whole(3)}}},
      {"flatten", {image}, {}},
      {"gelu", {real({9})}, {}},
      {"layer_norm", {real({3, 8})}, {}},
      {"linear", {real({5})}, {{"out_features", whole(3)}}},
      {"linear", {real({4, 5})}, {{"out_features", whole(2)}, {"bias", false}}},
      {"max_pool2d", {image}, {{"kernel_size", whole(2)}}},
      {"max_pool2d", {image}, {{"kernel_size", whole(3)}, {"stride", whole(2)}, {"padding", whole(1)}}},
      {"multi_head_attention", {real({5, 8})}, {{"num_heads", whole(2)}}},
      {"multi_head_attention", {real({4, 6})}, {{"num_heads", whole(3)}, {"causal", true}, {"dropout", 0.3}}},
      {"multi_head_attention", {real({3, 4})}, {{"num_heads", whole(2)}, {"bias", false}}},
      {"position_embedding", {real({3, 4})}, {}},
      {"relu", {real({3, 4})}, {}},
      {"softmax", {real({2, 6})}, {}},
      {"tanh", {real({7})}, {}},
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

std::vector<at::Tensor> OpInstance::operator()() const {
  auto generator = at::make_generator<at::CPUGeneratorImpl>();
  LayerContext context{.key = {.seed = 3}, .layer = 1, .generator = &generator, .buffers = {}};
  return forward(attributes, inputs, weights, context);
}

OpInstance instantiate(const OpCase& op_case, std::int64_t samples) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(17);
  const auto draw = [&](Shape shape, DType dtype) {
    if (dtype == DType::int64) return at::empty(shape, at::kLong).random_(0, 5, generator);
    return at::empty(shape, at::kDouble).normal_(0, 1, generator);
  };
  OpInstance instance{.forward = find_forward(op_case.op),
                      .attributes = complete(op_case.op, op_case.attributes),
                      .inferred = {},
                      .inputs = {},
                      .weights = {}};
  instance.inferred = find_op(op_case.op)->infer(instance.attributes, op_case.inputs);
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
