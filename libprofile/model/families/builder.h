// What family builders share: their parsed arguments and a graph that grows layer by layer. Private to the
// families.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "libprofile/core/model/model_graph.h"

namespace pp::model {

/// Complete: every argument of the family, checked against its limits.
class Arguments {
 public:
  Arguments(std::string family, std::map<std::string, double, std::less<>> values)
      : family_(std::move(family)), values_(std::move(values)) {}
  const std::string& family() const { return family_; }
  std::int64_t whole(std::string_view name) const { return static_cast<std::int64_t>(number(name)); }
  double number(std::string_view name) const { return values_.find(name)->second; }

 private:
  std::string family_;
  std::map<std::string, double, std::less<>> values_;
};

/// Throws pp::Error (usage) unless `heads` divides `width`.
void require_heads(const Arguments& arguments);
/// Throws pp::Error (usage) unless the argument is a multiple of `factor`.
void require_multiple(const Arguments& arguments, std::string_view name, std::int64_t factor);

struct Convolution {
  std::int64_t out_channels = 1;
  std::int64_t kernel = 1;  ///< height, and width unless kernel_width is given
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  std::int64_t groups = 1;
  bool bias = false;
  std::int64_t kernel_width = 0;   ///< 0: square
  std::int64_t padding_width = 0;  ///< only with kernel_width
};

/// Every function that adds a layer returns its name, the input of the next one.
class GraphBuilder {
 public:
  /// `name`: of the model.
  explicit GraphBuilder(std::string name) { graph_.name = std::move(name); }

  /// Embeddings and linear layers that are added from here on start at N(0, std).
  void start_at(double std) { std_ = std; }

  std::string input(std::string name, TensorType type);
  std::string add(std::string name, std::string op, std::vector<std::string> inputs,
                  Attributes attributes = {});
  std::string embedding(std::string name, const std::string& tokens, std::int64_t rows, std::int64_t width,
                        double dropout = 0);
  std::string linear(std::string name, const std::string& input, std::int64_t out_features, bool bias = true);
  std::string conv2d(std::string name, const std::string& input, const Convolution& convolution);
  std::string pool2d(std::string name, std::string op, const std::string& input, std::int64_t kernel,
                     std::int64_t stride, std::int64_t padding);
  std::string global_pool(std::string name, const std::string& input);
  /// Without a layer when p is 0: returns `input` then.
  std::string dropout(std::string name, const std::string& input, double p);
  /// The layer added last has the parameters of `owner` from now on, where `shared`.
  void share_weights(const std::string& owner, bool shared);
  Layer& last() { return graph_.layers.back(); }

  /// `outputs` is what the model computes; the loss compares its prediction with `target`.
  ModelGraph train(std::vector<std::string> outputs, const std::string& loss, const std::string& prediction,
                   DataTensor target) &&;
  /// Logits against int64 labels of `shape`, by cross entropy.
  ModelGraph classify(const std::string& logits, Shape shape) &&;

 private:
  ModelGraph graph_;
  double std_ = 0;  ///< 0: PyTorch's defaults
};

using Build = ModelGraph (*)(GraphBuilder builder, const Arguments& arguments);

ModelGraph build_mlp(GraphBuilder builder, const Arguments& arguments);
ModelGraph build_lenet5(GraphBuilder builder, const Arguments& arguments);
ModelGraph build_alexnet(GraphBuilder builder, const Arguments& arguments);
ModelGraph build_vgg11(GraphBuilder builder, const Arguments& arguments);
ModelGraph build_vgg13(GraphBuilder builder, const Arguments& arguments);
ModelGraph build_vgg16(GraphBuilder builder, const Arguments& arguments);
ModelGraph build_vgg19(GraphBuilder builder, const Arguments& arguments);
ModelGraph build_resnet18(GraphBuilder builder, const Arguments& arguments);
ModelGraph build_resnet34(GraphBuilder builder, const Arguments& arguments);
ModelGraph build_resnet50(GraphBuilder builder, const Arguments& arguments);
ModelGraph build_resnet101(GraphBuilder builder, const Arguments& arguments);
ModelGraph build_resnet152(GraphBuilder builder, const Arguments& arguments);
ModelGraph build_resnext50(GraphBuilder builder, const Arguments& arguments);
ModelGraph build_resnext101(GraphBuilder builder, const Arguments& arguments);
ModelGraph build_wide_resnet50(GraphBuilder builder, const Arguments& arguments);
ModelGraph build_wide_resnet101(GraphBuilder builder, const Arguments& arguments);
ModelGraph build_squeezenet1_0(GraphBuilder builder, const Arguments& arguments);
ModelGraph build_squeezenet1_1(GraphBuilder builder, const Arguments& arguments);
ModelGraph build_mobilenet_v2(GraphBuilder builder, const Arguments& arguments);
ModelGraph build_densenet121(GraphBuilder builder, const Arguments& arguments);
ModelGraph build_inception_v3(GraphBuilder builder, const Arguments& arguments);
ModelGraph build_amoebanet_d(GraphBuilder builder, const Arguments& arguments);
ModelGraph build_unet(GraphBuilder builder, const Arguments& arguments);
ModelGraph build_east(GraphBuilder builder, const Arguments& arguments);
ModelGraph build_transformer(GraphBuilder builder, const Arguments& arguments);
ModelGraph build_transformer_encoder(GraphBuilder builder, const Arguments& arguments);
ModelGraph build_bert(GraphBuilder builder, const Arguments& arguments);
ModelGraph build_gpt2(GraphBuilder builder, const Arguments& arguments);
ModelGraph build_t5(GraphBuilder builder, const Arguments& arguments);
ModelGraph build_rotary_decoder(GraphBuilder builder, const Arguments& arguments);
ModelGraph build_gpt_neox(GraphBuilder builder, const Arguments& arguments);
ModelGraph build_opt(GraphBuilder builder, const Arguments& arguments);
ModelGraph build_gnmt(GraphBuilder builder, const Arguments& arguments);
ModelGraph build_awd_lstm(GraphBuilder builder, const Arguments& arguments);
ModelGraph build_s2vt(GraphBuilder builder, const Arguments& arguments);

}  // namespace pp::model
