// T5 (Raffel et al., Exploring the limits of transfer learning with a unified text-to-text transformer, 2020),
// version 1.0: encoder and decoder with rms norm before each branch, attention without biases and without
// scaling, a learned bias by relative position that all layers of a stack share, relu. Both embeddings and the
// head have the same weights; the head's input is scaled for it.
#include <cmath>

#include "libprofile/model/families/builder.h"

namespace pp::model {
namespace {

class Stack {
 public:
  /// `tokens`: the stack's input, which tells the relative position bias how many samples there are.
  Stack(GraphBuilder& builder, const Arguments& arguments, std::string name, const std::string& tokens,
        bool causal)
      : builder_(builder),
        arguments_(arguments),
        name_(std::move(name)),
        causal_(causal),
        bias_(builder.add(name_ + ".relative_bias", "relative_position_bias", {tokens},
                          {{"num_heads", arguments.whole("heads")}})) {}

  std::string dropout(const std::string& name, const std::string& x) {
    return builder_.dropout(name_ + "." + name, x, arguments_.number("dropout"));
  }

  std::string self_attention(const std::string& block, const std::string& x) {
    Attributes attributes = attention_attributes();
    attributes.emplace("causal", causal_);
    return branch(block + ".self", x, [&](const std::string& layer, const std::string& y) {
      return builder_.add(layer, "multi_head_attention", {y, bias_}, attributes);
    });
  }

  std::string cross_attention(const std::string& block, const std::string& x, const std::string& memory) {
    return branch(block + ".cross", x, [&](const std::string& layer, const std::string& y) {
      return builder_.add(layer, "cross_attention", {y, memory}, attention_attributes());
    });
  }

  std::string perceptron(const std::string& block, const std::string& x) {
    return branch(block + ".perceptron", x, [&](const std::string& layer, std::string y) {
      y = builder_.linear(layer + ".wi", y, arguments_.whole("hidden"), false);
      y = builder_.add(layer + ".relu", "relu", {y});
      y = builder_.dropout(layer + ".dropout", y, arguments_.number("dropout"));
      return builder_.linear(layer + ".wo", y, arguments_.whole("width"), false);
    });
  }

  std::string end(const std::string& x) {
    return dropout("last_dropout", builder_.add(name_ + ".norm", "rms_norm", {x}));
  }

 private:
  Attributes attention_attributes() const {
    return {{"num_heads", arguments_.whole("heads")},
            {"dropout", arguments_.number("dropout")},
            {"bias", false},
            {"scaled", false}};
  }

  /// x + dropout(body(norm(x)))
  template <class Body>
  std::string branch(const std::string& part, const std::string& x, Body&& body) {
    const std::string layer = name_ + "." + part;
    std::string y = builder_.add(layer + ".norm", "rms_norm", {x});
    y = dropout(part + ".last_dropout", body(layer, y));
    return builder_.add(layer + ".add", "add", {x, y});
  }

  GraphBuilder& builder_;
  const Arguments& arguments_;
  std::string name_;
  bool causal_;
  std::string bias_;
};

std::string block_name(std::int64_t i) { return "block" + std::to_string(i); }

}  // namespace

ModelGraph build_t5(GraphBuilder builder, const Arguments& arguments) {
  require_heads(arguments);
  const std::int64_t width = arguments.whole("width"), vocabulary = arguments.whole("vocabulary");
  const std::int64_t layers = arguments.whole("layers");
  const bool tied = arguments.whole("tied") == 1;
  const std::string source = builder.input("source", {{arguments.whole("source")}, DType::int64});
  const std::string target = builder.input("target", {{arguments.whole("target")}, DType::int64});

  // Theirs are N(0, 1): with shared weights each token would begin by expecting itself.
  const auto embedded = [&](const char* name, const std::string& tokens) {
    const std::string x = builder.embedding(name, tokens, vocabulary, width);
    builder.last().attributes.emplace("std", 1.0 / std::sqrt(static_cast<double>(width)));
    return x;
  };
  std::string memory = embedded("encoder.embedding", source);
  Stack encoder(builder, arguments, "encoder", source, false);
  memory = encoder.dropout("dropout", memory);
  for (std::int64_t i = 0; i < layers; ++i)
    memory = encoder.perceptron(block_name(i), encoder.self_attention(block_name(i), memory));
  memory = encoder.end(memory);

  std::string x = embedded("decoder.embedding", target);
  builder.share_weights("encoder.embedding", tied);
  Stack decoder(builder, arguments, "decoder", target, true);
  x = decoder.dropout("dropout", x);
  for (std::int64_t i = 0; i < layers; ++i) {
    x = decoder.self_attention(block_name(i), x);
    x = decoder.cross_attention(block_name(i), x, memory);
    x = decoder.perceptron(block_name(i), x);
  }
  x = decoder.end(x);
  if (tied) x = builder.add("scale", "scale", {x}, {{"factor", 1.0 / std::sqrt(static_cast<double>(width))}});
  x = builder.linear("head", x, vocabulary, false);
  builder.share_weights("encoder.embedding", tied);
  return std::move(builder).classify(x, {arguments.whole("target")});
}

}  // namespace pp::model
