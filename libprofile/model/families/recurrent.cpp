// Networks of LSTMs: a language model, a translator, captions of videos.
#include <cmath>

#include "libprofile/model/families/builder.h"

namespace pp::model {

// AWD-LSTM (Merity et al., Regularizing and optimizing LSTM language models, 2018): weights dropped inside the
// LSTMs, one mask for all positions between them, whole words dropped in the embedding, which the head shares.
// Each sample starts from zero states: the state of the previous sample would tie micro-batches to their order.

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

// GNMT (Wu et al., Google's neural machine translation system, 2016) in the form that MLPerf and the pipeline
// papers train (NVIDIA's DeepLearningExamples, GNMT v2): the first encoder layer reads in both directions,
// attention is computed from the first decoder layer for all positions at once and goes to every later layer,
// layers from the third on are residual, and encoder and decoder share the embedding.

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

// S2VT (Venugopalan et al., Sequence to sequence - video to text, 2015): a first LSTM reads the frames of a
// video, given as features of a convolutional network; a second one reads its states beside the words of the
// caption. Frames come first, with nothing in place of words, then words with nothing in place of frames.

ModelGraph build_s2vt(GraphBuilder builder, const Arguments& arguments) {
  const std::int64_t frames = arguments.whole("frames"), words = arguments.whole("words");
  const std::int64_t width = arguments.whole("width"), vocabulary = arguments.whole("vocabulary");
  const double dropout = arguments.number("dropout");
  const auto lstm = [&](const std::string& name, const std::string& x) {
    return builder.add(name, "lstm", {x}, {{"hidden_size", arguments.whole("hidden")}});
  };
  const std::string video = builder.input("frames", {{frames, arguments.whole("features")}});
  const std::string caption = builder.input("words", {{words}, DType::int64});

  std::string x = builder.linear("frame_embedding", video, width);
  x = builder.dropout("frame_dropout", x, dropout);
  x = builder.add("frame_pad", "pad", {x}, {{"after", words}});
  x = lstm("lstm1", x);

  std::string spoken = builder.embedding("word_embedding", caption, vocabulary, width);
  spoken = builder.dropout("word_dropout", spoken, dropout);
  spoken = builder.add("word_pad", "pad", {spoken}, {{"before", frames}});
  x = builder.add("concat", "concat", {x, spoken}, {{"dim", std::int64_t{1}}});
  x = lstm("lstm2", x);
  x = builder.add("caption", "pad", {x}, {{"before", -frames}});
  x = builder.dropout("caption_dropout", x, dropout);
  x = builder.linear("classifier", x, vocabulary);
  return std::move(builder).classify(x, {words});
}

}  // namespace pp::model
