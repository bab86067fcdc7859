// What exports wrote, or why they did not.
#pragma once

#include <string>

#include "libplan/interop/trainer_export.h"
#include "libprofile/core/error.h"
#include "libprofile/core/limits.h"
#include "tests/libprofile/core/error_text.h"
#include "tests/support/doctest.h"
#include "tests/support/plans.h"

namespace pp::plan::test {

inline std::string file(const TrainerExport& out, const std::string& name) {
  for (const ExportedFile& f : out.files)
    if (f.name == name) return f.content;
  FAIL("no file ", name);
  return {};
}

/// Without the pointer to the page of limits, with which what a trainer cannot hold is refused.
template <class Export>
std::string refusal(Export&& exported) {
  std::string text = pp::test::error_of(exported, ErrorKind::data);
  if (text.ends_with(kLimits)) text.resize(text.size() - kLimits.size());
  return text;
}

inline Layer layer(const std::string& name, const std::string& op, const std::string& input,
                   Attributes attributes = {}) {
  return {name, op, {input}, std::move(attributes), ""};
}

/// embed, then blocks of norm, attention of two heads, up to 8, act, down to 4; then norm and head: 16 words, 8
/// positions, width 4. Layers: 1 + 5 * blocks + 2.
inline ModelGraph language(int blocks, bool tied = false) {
  ModelGraph graph;
  graph.name = "language";
  graph.inputs = {{"tokens", {{8}, DType::int64}}};
  graph.targets = {{"next", {{8}, DType::int64}}};
  const auto width = [](std::int64_t n) { return Attributes{{"out_features", n}, {"bias", false}}; };
  graph.layers = {layer("embed", "embedding", "tokens",
                        {{"num_embeddings", std::int64_t{16}}, {"embedding_dim", std::int64_t{4}}})};
  for (int n = 0; n < blocks; ++n) {
    const std::string block = "h." + std::to_string(n) + ".";
    graph.layers.push_back(layer(block + "norm", "layer_norm", graph.layers.back().name));
    graph.layers.push_back(
        layer(block + "attention", "multi_head_attention", block + "norm", {{"num_heads", std::int64_t{2}}}));
    graph.layers.push_back(layer(block + "up", "linear", block + "attention", width(8)));
    graph.layers.push_back(layer(block + "act", "gelu", block + "up"));
    graph.layers.push_back(layer(block + "down", "linear", block + "act", width(4)));
  }
  graph.layers.push_back(layer("norm", "layer_norm", graph.layers.back().name));
  graph.layers.push_back(layer("head", "linear", "norm", width(16)));
  if (tied) graph.layers.back().weights_of = "embed";
  graph.outputs = {"head"};
  graph.loss = LossSpec{"cross_entropy", {"head", "next"}, {}};
  return graph;
}

}  // namespace pp::plan::test
