#include "libprofile/model/families/builder.h"

#include <algorithm>

#include "libprofile/core/error.h"
#include "libprofile/core/ops/op_table.h"

namespace pp::model {

void require_heads(const Arguments& arguments) {
  const std::int64_t heads = arguments.whole("heads"), width = arguments.whole("width");
  if (width % heads == 0) return;
  throw Error(ErrorKind::usage, arguments.family() + ": heads=" + std::to_string(heads) +
                                    " must divide width=" + std::to_string(width));
}

void require_multiple(const Arguments& arguments, std::string_view name, std::int64_t factor) {
  const std::int64_t value = arguments.whole(name);
  if (value % factor == 0) return;
  throw Error(ErrorKind::usage, arguments.family() + ": " + std::string(name) + "=" + std::to_string(value) +
                                    " must be a multiple of " + std::to_string(factor));
}

std::string GraphBuilder::input(std::string name, TensorType type) {
  graph_.inputs.push_back({name, std::move(type)});
  return name;
}

std::string GraphBuilder::add(std::string name, std::string op, std::vector<std::string> inputs,
                              Attributes attributes) {
  const OpRow* row = find_op(op);
  if (std_ > 0 && row != nullptr &&
      std::ranges::find(row->attributes, "std", &AttributeSpec::name) != row->attributes.end())
    attributes.emplace("std", std_);
  graph_.layers.push_back({name, std::move(op), std::move(inputs), std::move(attributes), {}});
  return name;
}

std::string GraphBuilder::embedding(std::string name, const std::string& tokens, std::int64_t rows,
                                    std::int64_t width, double dropout) {
  return add(std::move(name), "embedding", {tokens},
             {{"num_embeddings", rows}, {"embedding_dim", width}, {"dropout", dropout}});
}

std::string GraphBuilder::linear(std::string name, const std::string& input, std::int64_t out_features,
                                 bool bias) {
  return add(std::move(name), "linear", {input}, {{"out_features", out_features}, {"bias", bias}});
}

std::string GraphBuilder::conv2d(std::string name, const std::string& input, const Convolution& c) {
  Attributes attributes{{"out_channels", c.out_channels}, {"kernel_size", c.kernel}, {"stride", c.stride},
                        {"padding", c.padding},           {"groups", c.groups},      {"bias", c.bias}};
  if (c.kernel_width > 0) {
    attributes.emplace("kernel_width", c.kernel_width);
    attributes.emplace("padding_width", c.padding_width);
  }
  return add(std::move(name), "conv2d", {input}, std::move(attributes));
}

std::string GraphBuilder::pool2d(std::string name, std::string op, const std::string& input,
                                 std::int64_t kernel, std::int64_t stride, std::int64_t padding) {
  return add(std::move(name), std::move(op), {input},
             {{"kernel_size", kernel}, {"stride", stride}, {"padding", padding}});
}

std::string GraphBuilder::global_pool(std::string name, const std::string& input) {
  return add(std::move(name), "adaptive_avg_pool2d", {input}, {{"output_size", std::int64_t{1}}});
}

std::string GraphBuilder::dropout(std::string name, const std::string& input, double p) {
  return p == 0 ? input : add(std::move(name), "dropout", {input}, {{"p", p}});
}

void GraphBuilder::share_weights(const std::string& owner, bool shared) {
  if (shared) last().weights_of = owner;
}

ModelGraph GraphBuilder::train(std::vector<std::string> outputs, const std::string& loss,
                               const std::string& prediction, DataTensor target) && {
  graph_.outputs = std::move(outputs);
  graph_.loss = LossSpec{loss, {prediction, target.name}, {}};
  graph_.targets.push_back(std::move(target));
  return std::move(graph_);
}

ModelGraph GraphBuilder::classify(const std::string& logits, Shape shape) && {
  return std::move(*this).train({logits}, "cross_entropy", logits, {"label", {std::move(shape), DType::int64}});
}

}  // namespace pp::model
