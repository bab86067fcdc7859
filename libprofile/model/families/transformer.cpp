// A decoder-only language model of GPT-2's shape (Radford et al., Language models are unsupervised multitask
// learners, 2019): learned positions, layer norm before attention and perceptron, gelu, a last layer norm, a
// head without bias. Targets are the next tokens.
#include "libprofile/core/error.h"
#include "libprofile/model/families/builder.h"

namespace pp::model {
namespace {

std::string add_block(GraphBuilder& builder, const std::string& name, const std::string& x,
                      const Arguments& arguments) {
  const std::int64_t width = arguments.whole("width");
  const double dropout = arguments.number("dropout");
  std::string y = builder.add(name + ".norm1", "layer_norm", {x});
  y = builder.add(name + ".attention", "multi_head_attention", {y},
                  {{"num_heads", arguments.whole("heads")}, {"causal", true}, {"dropout", dropout}});
  y = builder.dropout(name + ".dropout1", y, dropout);
  const std::string sum = builder.add(name + ".add1", "add", {x, y});
  y = builder.add(name + ".norm2", "layer_norm", {sum});
  y = builder.linear(name + ".fc1", y, 4 * width);
  y = builder.add(name + ".gelu", "gelu", {y});
  y = builder.linear(name + ".fc2", y, width);
  y = builder.dropout(name + ".dropout2", y, dropout);
  return builder.add(name + ".add2", "add", {sum, y});
}

}  // namespace

ModelGraph build_transformer(GraphBuilder builder, const Arguments& arguments) {
  const std::int64_t width = arguments.whole("width");
  const std::int64_t vocabulary = arguments.whole("vocabulary");
  const std::int64_t sequence = arguments.whole("sequence");
  if (width % arguments.whole("heads") != 0) {
    throw Error(ErrorKind::usage, "transformer: heads=" + std::to_string(arguments.whole("heads")) +
                                      " must divide width=" + std::to_string(width));
  }
  std::string x = builder.input("tokens", {{sequence}, DType::int64});
  x = builder.add("token_embedding", "embedding", {x},
                  {{"num_embeddings", vocabulary}, {"embedding_dim", width}});
  x = builder.add("position_embedding", "position_embedding", {x});
  x = builder.dropout("dropout", x, arguments.number("dropout"));
  for (std::int64_t i = 0; i < arguments.whole("layers"); ++i)
    x = add_block(builder, "block" + std::to_string(i), x, arguments);
  x = builder.add("norm", "layer_norm", {x});
  x = builder.linear("head", x, vocabulary, false);
  if (arguments.whole("tied") == 1) builder.last().weights_of = "token_embedding";
  return std::move(builder).classify(x, {sequence});
}

}  // namespace pp::model
