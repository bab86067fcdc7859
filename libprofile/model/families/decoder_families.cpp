// The decoders among the families of `pp-profile models`, with a public configuration as defaults.
#include <cmath>
#include <utility>

#include "libprofile/core/error.h"
#include "libprofile/model/families/decoder.h"

namespace pp::model {
namespace {

/// The row's arguments; those that only some families have are asked for by them alone.
Decoder sized(const Arguments& arguments) {
  Decoder decoder = decoder_of_family(arguments.family());
  decoder.vocabulary = arguments.whole("vocabulary");
  decoder.width = arguments.whole("width");
  decoder.hidden = arguments.whole("hidden");
  decoder.heads = arguments.whole("heads");
  decoder.sequence = arguments.whole("sequence");
  decoder.tied = arguments.whole("tied") == 1;
  decoder.blocks.resize(static_cast<std::size_t>(arguments.whole("layers")));
  return decoder;
}

}  // namespace

ModelGraph build_rotary_decoder(GraphBuilder builder, const Arguments& arguments) {
  Decoder decoder = sized(arguments);
  decoder.eps = arguments.number("eps");
  decoder.groups = arguments.whole("kv_heads");
  decoder.head_width = arguments.whole("head_width");
  decoder.attention.emplace("rotary_dim", decoder.head_width);
  decoder.attention.emplace("rotary_base", arguments.number("rope_base"));
  if (decoder.attention.contains("norms")) decoder.attention.emplace("norm_eps", decoder.eps);
  if (arguments.family() == "mistral") {
    for (DecoderBlock& block : decoder.blocks) block.window = arguments.whole("window");
  }
  if (arguments.family() == "gemma2") {
    for (std::size_t i = 0; i < decoder.blocks.size(); i += 2)
      decoder.blocks[i].window = arguments.whole("window");
    decoder.embedding_scale = std::sqrt(static_cast<double>(decoder.width));
    decoder.attention.emplace("soft_cap", 50.0);
    decoder.logit_cap = 30;
    decoder.padding = 0;
  }
  return build_decoder(std::move(builder), decoder);
}

ModelGraph build_gpt_neox(GraphBuilder builder, const Arguments& arguments) {
  require_heads(arguments);
  Decoder decoder = sized(arguments);
  decoder.eps = 1e-5;
  decoder.groups = decoder.heads;
  decoder.head_width = decoder.width / decoder.heads;
  decoder.attention.emplace("rotary_dim", decoder.head_width / 4 / 2 * 2);
  return build_decoder(std::move(builder), decoder);
}

ModelGraph build_opt(GraphBuilder builder, const Arguments& arguments) {
  require_heads(arguments);
  Decoder decoder = sized(arguments);
  decoder.eps = 1e-5;
  decoder.groups = decoder.heads;
  decoder.head_width = decoder.width / decoder.heads;
  decoder.position_rows = arguments.whole("positions") + decoder.position_offset;
  decoder.residual_dropout = arguments.number("dropout");
  decoder.padding = 1;
  if (decoder.sequence > arguments.whole("positions")) {
    throw Error(ErrorKind::usage, "opt: sequence=" + std::to_string(decoder.sequence) +
                                      " is above positions=" + std::to_string(arguments.whole("positions")) +
                                      ", the rows of its table; raise positions");
  }
  return build_decoder(std::move(builder), decoder);
}

}  // namespace pp::model
