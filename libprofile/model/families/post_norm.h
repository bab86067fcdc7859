// The encoder block of the transformer with layer norm behind each branch, which BERT shares.
#pragma once

#include <string>

#include "libprofile/model/families/builder.h"

namespace pp::model {

struct PostNormBlock {
  std::int64_t width, heads, hidden;
  double dropout;            ///< on attention weights and on both branches
  std::string activation;    ///< op between the two linear layers
  double eps = 1e-5;         ///< of the norms
  double inner_dropout = 0;  ///< behind the activation
};

/// Attention and perceptron, each added to its input and normalised: [l, width] -> the same.
std::string add_post_norm_block(GraphBuilder& builder, const std::string& name, const std::string& x,
                                const PostNormBlock& block);

}  // namespace pp::model
