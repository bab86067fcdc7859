// GNMT (Wu et al., Google's neural machine translation system, 2016) in the form that MLPerf and the pipeline
// papers train (NVIDIA's DeepLearningExamples, GNMT v2): the first encoder layer reads in both directions,
// attention is computed from the first decoder layer for all positions at once and goes to every later layer,
// layers from the third on are residual, and encoder and decoder share the embedding.
#include "libprofile/model/families/builder.h"

namespace pp::model {
namespace {

class Gnmt {
 public:
  Gnmt(GraphBuilder& builder, const Arguments& arguments) : builder_(builder), arguments_(arguments) {}

  std::string embedding(const std::string& name, const std::string& tokens) {
    return builder_.embedding(name, tokens, arguments_.whole("vocabulary"), arguments_.whole("width"));
  }

  /// Dropout, then an LSTM.
  std::string lstm(const std::string& name, const std::string& x, bool bidirectional = false) {
    return builder_.add(name, "lstm", {builder_.dropout(name + ".dropout", x, arguments_.number("dropout"))},
                        {{"hidden_size", arguments_.whole("width")}, {"bidirectional", bidirectional}});
  }

  /// The LSTM of `x`, plus `shortcut`.
  std::string residual(const std::string& name, const std::string& x, const std::string& shortcut) {
    return builder_.add(name + ".add", "add", {lstm(name, x), shortcut});
  }

  std::string encode(const std::string& tokens) {
    std::string x = embedding("encoder.embedding", tokens);
    x = lstm("encoder.lstm0", x, true);
    x = lstm("encoder.lstm1", x);
    for (std::int64_t i = 2; i < arguments_.whole("layers"); ++i)
      x = residual("encoder.lstm" + std::to_string(i), x, x);
    return x;
  }

  std::string decode(const std::string& tokens, const std::string& memory) {
    std::string x = embedding("decoder.embedding", tokens);
    builder_.share_weights("encoder.embedding", arguments_.whole("tied") == 1);
    x = lstm("decoder.lstm0", x);
    const std::string attended = builder_.add("decoder.attention", "additive_attention", {x, memory},
                                              {{"num_units", arguments_.whole("width")}});
    const auto with_attention = [&](const std::string& name) {
      return builder_.add(name + ".concat", "concat", {x, attended}, {{"dim", std::int64_t{1}}});
    };
    x = lstm("decoder.lstm1", with_attention("decoder.lstm1"));
    for (std::int64_t i = 2; i < arguments_.whole("layers"); ++i) {
      const std::string name = "decoder.lstm" + std::to_string(i);
      x = residual(name, with_attention(name), x);
    }
    return builder_.linear("decoder.classifier", x, arguments_.whole("vocabulary"));
  }

 private:
  GraphBuilder& builder_;
  const Arguments& arguments_;
};

}  // namespace

ModelGraph build_gnmt(GraphBuilder builder, const Arguments& arguments) {
  const std::int64_t target_length = arguments.whole("target");
  Gnmt gnmt(builder, arguments);
  const std::string source = builder.input("source", {{arguments.whole("source")}, DType::int64});
  const std::string target = builder.input("target", {{target_length}, DType::int64});
  const std::string logits = gnmt.decode(target, gnmt.encode(source));
  return std::move(builder).classify(logits, {target_length});
}

}  // namespace pp::model
