#include "libprofile/model/families/builder.h"

namespace pp::model {

std::string GraphBuilder::input(std::string name, TensorType type) {
  graph_.inputs.push_back({name, std::move(type)});
  return name;
}

std::string GraphBuilder::add(std::string name, std::string op, std::vector<std::string> inputs,
                              Attributes attributes) {
  graph_.layers.push_back({name, std::move(op), std::move(inputs), std::move(attributes), {}});
  return name;
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

ModelGraph GraphBuilder::classify(const std::string& logits, Shape shape) && {
  graph_.targets.push_back({"label", {std::move(shape), DType::int64}});
  graph_.outputs = {logits};
  graph_.loss = LossSpec{"cross_entropy", {logits, "label"}, {}};
  return std::move(graph_);
}

}  // namespace pp::model
