#include "tests/libprofile/model/models.h"

#include "tests/libprofile/model/graph_builder.h"

namespace pp::model::test {

ResolvedModel residual_model() {
  const Attributes conv{{"out_channels", whole(4)}, {"kernel_size", whole(3)}, {"padding", whole(1)}};
  return GraphBuilder()
      .input("image", {3, 8, 8})
      .target("label", {})
      .layer("conv0", "conv2d", {"image"}, conv)
      .layer("relu0", "relu", {"conv0"})
      .layer("conv1", "conv2d", {"relu0"}, conv)
      .layer("norm1", "batch_norm2d", {"conv1"})
      .layer("relu1", "relu", {"norm1"})
      .layer("conv2", "conv2d", {"relu1"}, conv)
      .layer("norm2", "batch_norm2d", {"conv2"})
      .layer("join", "add", {"norm2", "relu0"})
      .layer("relu2", "relu", {"join"})
      .layer("pool", "max_pool2d", {"relu2"}, {{"kernel_size", whole(2)}, {"stride", whole(2)}})
      .layer("mean", "avg_pool2d", {"pool"}, {{"kernel_size", whole(2)}, {"stride", whole(2)}})
      .layer("flat", "flatten", {"mean"})
      .layer("drop", "dropout", {"flat"}, {{"p", 0.25}})
      .layer("head", "linear", {"drop"}, {{"out_features", whole(5)}})
      .output("head")
      .loss("cross_entropy", "head", "label")
      .build();
}

ResolvedModel language_model() {
  return GraphBuilder()
      .input("tokens", {6}, DType::int64)
      .target("next", {6})
      .layer("embedding", "embedding", {"tokens"}, {{"num_embeddings", whole(11)}, {"embedding_dim", whole(8)}})
      .layer("positions", "position_embedding", {"embedding"})
      .layer("drop0", "dropout", {"positions"}, {{"p", 0.1}})
      .layer("norm1", "layer_norm", {"drop0"})
      .layer("attention", "multi_head_attention", {"norm1"},
             {{"num_heads", whole(2)}, {"causal", true}, {"dropout", 0.2}})
      .layer("drop1", "dropout", {"attention"}, {{"p", 0.1}})
      .layer("join1", "add", {"drop0", "drop1"})
      .layer("norm2", "layer_norm", {"join1"})
      .layer("up", "linear", {"norm2"}, {{"out_features", whole(16)}})
      .layer("gelu", "gelu", {"up"})
      .layer("down", "linear", {"gelu"}, {{"out_features", whole(8)}})
      .layer("drop2", "dropout", {"down"}, {{"p", 0.1}})
      .layer("join2", "add", {"join1", "drop2"})
      .layer("norm3", "layer_norm", {"join2"})
      .layer("logits", "linear", {"norm3"}, {{"out_features", whole(11)}, {"bias", false}}, "embedding")
      .output("logits")
      .loss("cross_entropy", "logits", "next")
      .build();
}

ResolvedModel branching_model() {
  return GraphBuilder()
      .input("image", {2, 6, 6})
      .target("wanted", {3}, DType::float32)
      .layer("stem", "conv2d", {"image"},
             {{"out_channels", whole(3)}, {"kernel_size", whole(3)}, {"padding", whole(1)}})
      .layer("left", "conv2d", {"stem"}, {{"out_channels", whole(2)}, {"kernel_size", whole(1)}})
      .layer("right", "tanh", {"stem"})
      .layer("both", "concat", {"left", "right", "stem"})
      .layer("small", "adaptive_avg_pool2d", {"both"}, {{"output_size", whole(2)}})
      .layer("flat", "flatten", {"small"})
      .layer("hidden", "linear", {"flat"}, {{"out_features", whole(7)}})
      .layer("shares", "softmax", {"hidden"})
      .layer("twice", "add", {"shares", "shares"})
      .layer("head", "linear", {"twice"}, {{"out_features", whole(3)}})
      .output("head")
      .loss("mse", "head", "wanted")
      .build();
}

}  // namespace pp::model::test
