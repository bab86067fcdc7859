// Decoders written out layer by layer, as config.json files describe them.
#pragma once

#include <string>
#include <vector>

#include "libprofile/core/model/model_graph.h"

namespace pp::plan::test {

/// What differs between families; the defaults are Llama's.
struct DecoderParts {
  int blocks = 2;
  std::int64_t width = 8, heads = 4, groups = 2, head_width = 2, hidden = 12, vocabulary = 20, sequence = 16;
  std::string norm = "rms_norm";
  Attributes norm_attributes{{"eps", 1e-5}};
  bool qkv_bias = false, out_bias = false, feed_forward_bias = false;
  std::string activation = "silu";  ///< `gate` in front of it, or alone
  bool gated = true;
  Attributes attention{{"rotary_dim", std::int64_t{2}}, {"rotary_base", 500000.0}};
  std::int64_t positions = 0;  ///< rows of a table of learned ones
  double dropout = 0;
  bool tied = false;
};

/// embedding, blocks of `layers.N.`, norm, head.
inline ModelGraph decoder(const DecoderParts& parts) {
  ModelGraph graph;
  graph.name = "decoder";
  graph.inputs = {{"tokens", {{parts.sequence}, DType::int64}}};
  graph.targets = {{"next", {{parts.sequence}, DType::int64}}};
  std::string prefix;
  const auto add = [&](const std::string& name, const std::string& op, std::vector<std::string> inputs,
                       Attributes attributes = {}) {
    graph.layers.push_back({prefix + name, op, std::move(inputs), std::move(attributes)});
    return prefix + name;
  };
  const auto linear = [&](const std::string& name, const std::string& x, std::int64_t out, bool bias) {
    return add(name, "linear", {x}, {{"out_features", out}, {"bias", bias}});
  };
  const auto dropout = [&](const std::string& name, const std::string& x) {
    return parts.dropout > 0 ? add(name, "dropout", {x}, {{"p", parts.dropout}}) : x;
  };
  std::string x = add("embed", "embedding", {"tokens"},
                      {{"num_embeddings", parts.vocabulary}, {"embedding_dim", parts.width}});
  if (parts.positions > 0)
    x = add("positions", "position_embedding", {x}, {{"num_embeddings", parts.positions}});
  x = dropout("dropout", x);
  for (int block = 0; block < parts.blocks; ++block) {
    prefix = "layers." + std::to_string(block) + ".";
    const std::string normed = add("norm1", parts.norm, {x}, parts.norm_attributes);
    const std::int64_t keys = parts.groups * parts.head_width;
    Attributes attention = parts.attention;
    attention.emplace("num_heads", parts.heads);
    attention.emplace("num_key_value_heads", parts.groups);
    std::string y = add("attention", "grouped_query_attention",
                        {linear("q", normed, parts.heads * parts.head_width, parts.qkv_bias),
                         linear("k", normed, keys, parts.qkv_bias), linear("v", normed, keys, parts.qkv_bias)},
                        std::move(attention));
    y = dropout("dropout1", linear("out", y, parts.width, parts.out_bias));
    x = add("sum1", "add", {x, y});
    y = add("norm2", parts.norm, {x}, parts.norm_attributes);
    if (parts.gated) {
      const std::string gate = linear("gate", y, parts.hidden, parts.feed_forward_bias);
      y = add("act", "gated_activation", {gate, linear("up", y, parts.hidden, parts.feed_forward_bias)},
              {{"activation", parts.activation}});
    } else {
      y = add("act", parts.activation, {linear("up", y, parts.hidden, parts.feed_forward_bias)});
    }
    y = dropout("dropout2", linear("down", y, parts.width, parts.feed_forward_bias));
    x = add("sum2", "add", {x, y});
  }
  prefix.clear();
  x = linear("head", add("norm", parts.norm, {x}, parts.norm_attributes), parts.vocabulary, false);
  if (parts.tied) graph.layers.back().weights_of = "embed";
  graph.outputs = {x};
  graph.loss = LossSpec{"cross_entropy", {x, "next"}, {}};
  return graph;
}

/// The published sizes of Llama-3-8B.
inline DecoderParts llama_8b() {
  return {.blocks = 32,
          .width = 4096,
          .heads = 32,
          .groups = 8,
          .head_width = 128,
          .hidden = 14336,
          .vocabulary = 128256,
          .sequence = 4096,
          .attention = {{"rotary_dim", std::int64_t{128}}, {"rotary_base", 500000.0}}};
}

}  // namespace pp::plan::test
