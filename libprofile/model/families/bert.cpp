// BERT (Devlin et al., BERT: pre-training of deep bidirectional transformers for language understanding, 2019)
// with its masked language model: a transform and a head with the token embedding's weights. The loss is over
// all positions, and without next-sentence prediction: a model here has one loss.
#include "libprofile/model/families/post_norm.h"

namespace pp::model {
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
