// The encoder of the transformer (Vaswani et al., Attention is all you need, 2017) as a classifier of
// sequences: scaled embedding, sines and cosines of the position, post-norm blocks with
// torch.nn.TransformerEncoderLayer's names, the mean over the positions, a linear layer.
#include <cmath>

#include "libprofile/model/families/post_norm.h"

namespace pp::model {

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

}  // namespace pp::model
