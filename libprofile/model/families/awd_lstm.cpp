// AWD-LSTM (Merity et al., Regularizing and optimizing LSTM language models, 2018): weights dropped inside the
// LSTMs, one mask for all positions between them, whole words dropped in the embedding, which the head shares.
// Each sample starts from zero states: the state of the previous sample would tie micro-batches to their order.
#include <cmath>

#include "libprofile/model/families/builder.h"

namespace pp::model {
namespace {

std::string add_locked_dropout(GraphBuilder& builder, const std::string& name, const std::string& x, double p) {
  return p == 0 ? x : builder.add(name, "locked_dropout", {x}, {{"p", p}});
}

}  // namespace

ModelGraph build_awd_lstm(GraphBuilder builder, const Arguments& arguments) {
  const std::int64_t width = arguments.whole("width"), sequence = arguments.whole("sequence");
  const std::int64_t layers = arguments.whole("layers"), vocabulary = arguments.whole("vocabulary");
  std::string x = builder.input("tokens", {{sequence}, DType::int64});
  x = builder.embedding("encoder", x, vocabulary, width, arguments.number("embedding_dropout"));
  builder.last().attributes.emplace("std", 0.1 / std::sqrt(3.0));  // of U(-0.1, 0.1), theirs
  x = add_locked_dropout(builder, "dropout", x, arguments.number("input_dropout"));
  const auto layer = [&](const std::string& name, std::int64_t hidden, std::string_view dropout) {
    const std::string states = builder.add(
        name, "lstm", {x}, {{"hidden_size", hidden}, {"weight_dropout", arguments.number("weight_dropout")}});
    return add_locked_dropout(builder, name + ".dropout", states, arguments.number(dropout));
  };
  for (std::int64_t i = 0; i + 1 < layers; ++i)
    x = layer("rnns." + std::to_string(i), arguments.whole("hidden"), "hidden_dropout");
  x = layer("rnns." + std::to_string(layers - 1), width, "output_dropout");
  x = builder.linear("decoder", x, vocabulary, false);
  builder.share_weights("encoder", arguments.whole("tied") == 1);
  x = builder.add("decoder.bias", "bias", {x});
  return std::move(builder).classify(x, {sequence});
}

}  // namespace pp::model
