// Decoder-only language models of GPT-2's shape (Radford et al., Language models are unsupervised multitask
// learners, 2019): learned positions, layer norm before attention and perceptron, gelu (GPT-2's own by tanh), a
// last layer norm, a head without bias. Targets are the next tokens.
#include "libprofile/model/families/builder.h"

namespace pp::model {
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

}  // namespace pp::model
