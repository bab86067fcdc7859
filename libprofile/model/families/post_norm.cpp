#include "libprofile/model/families/post_norm.h"

namespace pp::model {

std::string add_post_norm_block(GraphBuilder& builder, const std::string& name, const std::string& x,
                                const PostNormBlock& block) {
  const auto join = [&](const std::string& number, const std::string& input, std::string branch) {
    branch = builder.dropout(name + ".dropout" + number, branch, block.dropout);
    branch = builder.add(name + ".add" + number, "add", {input, branch});
    return builder.add(name + ".norm" + number, "layer_norm", {branch}, {{"eps", block.eps}});
  };
  const std::string attended = builder.add(name + ".self_attn", "multi_head_attention", {x},
                                           {{"num_heads", block.heads}, {"dropout", block.dropout}});
  const std::string middle = join("1", x, attended);
  std::string y = builder.linear(name + ".linear1", middle, block.hidden);
  y = builder.add(name + ".activation", block.activation, {y});
  y = builder.dropout(name + ".dropout", y, block.inner_dropout);
  y = builder.linear(name + ".linear2", y, block.width);
  return join("2", middle, y);
}

}  // namespace pp::model
