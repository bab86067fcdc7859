// S2VT (Venugopalan et al., Sequence to sequence - video to text, 2015): a first LSTM reads the frames of a
// video, given as features of a convolutional network; a second one reads its states beside the words of the
// caption. Frames come first, with nothing in place of words, then words with nothing in place of frames.
#include "libprofile/model/families/builder.h"

namespace pp::model {

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
