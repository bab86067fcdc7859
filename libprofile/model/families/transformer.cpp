// Transformers of one stack: of GPT-2's shape, BERT, and the encoder of 2017.
#include <cmath>

#include "libprofile/model/families/builder.h"

namespace pp::model {

// Decoder-only language models of GPT-2's shape (Radford et al., Language models are unsupervised multitask
// learners, 2019): learned positions, layer norm before attention and perceptron, gelu (GPT-2's own by tanh), a
// last layer norm, a head without bias. Targets are the next tokens.

namespace {

enum class Gelu { exact, by_tanh };

std::string add_block(GraphBuilder& builder, const std::string& name, const std::string& x,
                      const Arguments& arguments, Gelu gelu) {
  const std::int64_t width = arguments.whole("width");
  const double dropout = arguments.number("dropout");
  std::string y = builder.add(name + ".norm1", "layer_norm", {x});
  y = builder.add(name + ".attention", "multi_head_attention", {y},
                  {{"num_heads", arguments.whole("heads")}, {"causal", true}, {"dropout", dropout}});
  y = builder.dropout(name + ".dropout1", y, dropout);
  const std::string sum = builder.add(name + ".add1", "add", {x, y});
  y = builder.add(name + ".norm2", "layer_norm", {sum});
  y = builder.linear(name + ".fc1", y, 4 * width);
  y = builder.add(name + ".gelu", "gelu", {y}, {{"tanh", gelu == Gelu::by_tanh}});
  y = builder.linear(name + ".fc2", y, width);
  y = builder.dropout(name + ".dropout2", y, dropout);
  return builder.add(name + ".add2", "add", {sum, y});
}

ModelGraph build_decoder(GraphBuilder builder, const Arguments& arguments, Gelu gelu) {
  const std::int64_t width = arguments.whole("width");
  const std::int64_t vocabulary = arguments.whole("vocabulary");
  const std::int64_t sequence = arguments.whole("sequence");
  require_heads(arguments);
  builder.start_at(0.02);
  std::string x = builder.input("tokens", {{sequence}, DType::int64});
  x = builder.embedding("token_embedding", x, vocabulary, width);
  x = builder.add("position_embedding", "position_embedding", {x});
  x = builder.dropout("dropout", x, arguments.number("dropout"));
  for (std::int64_t i = 0; i < arguments.whole("layers"); ++i)
    x = add_block(builder, "block" + std::to_string(i), x, arguments, gelu);
  x = builder.add("norm", "layer_norm", {x});
  x = builder.linear("head", x, vocabulary, false);
  builder.share_weights("token_embedding", arguments.whole("tied") == 1);
  return std::move(builder).classify(x, {sequence});
}

}  // namespace

ModelGraph build_transformer(GraphBuilder builder, const Arguments& arguments) {
  return build_decoder(std::move(builder), arguments, Gelu::exact);
}
ModelGraph build_gpt2(GraphBuilder builder, const Arguments& arguments) {
  return build_decoder(std::move(builder), arguments, Gelu::by_tanh);
}

namespace {

/// The encoder block with layer norm behind each branch, which BERT shares.
struct PostNormBlock {
  std::int64_t width, heads, hidden;
  double dropout;            ///< on attention weights and on both branches
  std::string activation;    ///< op between the two linear layers
  double eps = 1e-5;         ///< of the norms
  double inner_dropout = 0;  ///< behind the activation
};

/// Attention and perceptron, each added to its input and normalised: [l, width] -> the same.
std::string add_post_norm_block(GraphBuilder& builder, const std::string& name, const std::string& x,
                                const PostNormBlock& block) {
  const auto join = [&](const std::string& number, const std::string& input, std::string branch) {
    branch = builder.dropout(name + ".dropout" + number, branch, block.dropout);
    branch = builder.add(name + ".add" + number, "add", {input, branch});
    return builder.add(name + ".norm" + number, "layer_norm", {branch}, {{"eps", block.eps}});
  };
  const std::string attended = builder.add(name + ".self_attn", "multi_head_attention", {x},
                                           {{"num_heads", block.heads}, {"dropout", block.dropout}});
  const std::string middle = join("1", x, attended);
  std::string y = builder.linear(name + ".linear1", middle, block.hidden);
  y = builder.add(name + ".activation", block.activation, {y});
  y = builder.dropout(name + ".dropout", y, block.inner_dropout);
  y = builder.linear(name + ".linear2", y, block.width);
  return join("2", middle, y);
}

}  // namespace

// The encoder of the transformer (Vaswani et al., Attention is all you need, 2017) as a classifier of
// sequences: scaled embedding, sines and cosines of the position, post-norm blocks with
// torch.nn.TransformerEncoderLayer's names, the mean over the positions, a linear layer.

ModelGraph build_transformer_encoder(GraphBuilder builder, const Arguments& arguments) {
  require_heads(arguments);
  require_multiple(arguments, "width", 2);
  const std::int64_t width = arguments.whole("width");
  const double dropout = arguments.number("dropout");
  std::string x = builder.input("tokens", {{arguments.whole("sequence")}, DType::int64});
  x = builder.embedding("embedding", x, arguments.whole("vocabulary"), width);
  x = builder.add("scale", "scale", {x}, {{"factor", std::sqrt(static_cast<double>(width))}});
  x = builder.add("positions", "position_encoding", {x});
  x = builder.dropout("dropout", x, dropout);
  const PostNormBlock block{.width = width,
                            .heads = arguments.whole("heads"),
                            .hidden = arguments.whole("hidden"),
                            .dropout = dropout,
                            .activation = "relu",
                            .inner_dropout = dropout};
  for (std::int64_t i = 0; i < arguments.whole("layers"); ++i)
    x = add_post_norm_block(builder, "layers." + std::to_string(i), x, block);
  x = builder.add("mean", "mean", {x});
  x = builder.linear("classifier", x, arguments.whole("classes"));
  return std::move(builder).classify(x, {});
}

// BERT (Devlin et al., BERT: pre-training of deep bidirectional transformers for language understanding, 2019)
// with its masked language model: a transform and a head with the token embedding's weights. The loss is over
// all positions, and without next-sentence prediction: a model here has one loss.

namespace {

constexpr double kEps = 1e-12;

std::string add_norm(GraphBuilder& builder, const std::string& name, const std::string& x) {
  return builder.add(name, "layer_norm", {x}, {{"eps", kEps}});
}

/// Tokens, positions and segments (which of two sentences), added and normalised.
std::string add_embeddings(GraphBuilder& builder, const Arguments& arguments) {
  const std::int64_t sequence = arguments.whole("sequence"), width = arguments.whole("width");
  const std::string tokens = builder.input("tokens", {{sequence}, DType::int64});
  const std::string segments = builder.input("segments", {{sequence}, DType::int64});
  std::string x = builder.embedding("embeddings.tokens", tokens, arguments.whole("vocabulary"), width);
  const std::string segment = builder.embedding("embeddings.segments", segments, 2, width);
  x = builder.add("embeddings.add", "add", {x, segment});
  x = builder.add("embeddings.positions", "position_embedding", {x});
  x = add_norm(builder, "embeddings.norm", x);
  return builder.dropout("embeddings.dropout", x, arguments.number("dropout"));
}

}  // namespace

ModelGraph build_bert(GraphBuilder builder, const Arguments& arguments) {
  require_heads(arguments);
  const std::int64_t width = arguments.whole("width"), vocabulary = arguments.whole("vocabulary");
  builder.start_at(0.02);
  std::string x = add_embeddings(builder, arguments);
  const PostNormBlock block{.width = width,
                            .heads = arguments.whole("heads"),
                            .hidden = 4 * width,
                            .dropout = arguments.number("dropout"),
                            .activation = "gelu",
                            .eps = kEps};
  for (std::int64_t i = 0; i < arguments.whole("layers"); ++i)
    x = add_post_norm_block(builder, "layer." + std::to_string(i), x, block);
  x = builder.linear("head.transform", x, width);
  x = builder.add("head.gelu", "gelu", {x});
  x = add_norm(builder, "head.norm", x);
  x = builder.linear("head.decoder", x, vocabulary, false);
  builder.share_weights("embeddings.tokens", arguments.whole("tied") == 1);
  x = builder.add("head.bias", "bias", {x});
  return std::move(builder).classify(x, {arguments.whole("sequence")});
}

}  // namespace pp::model
