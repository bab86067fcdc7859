// Which token follows. Free of Torch.
#pragma once

#include <cstdint>
#include <span>

namespace pp::run {

/// Greedy, or drawn from softmax(logits / temperature) over the largest `top_k` logits.
struct TokenRule {
  double temperature = 0;  ///< 0: the token with the largest logit, the first of equal ones
  int top_k = 0;           ///< 0: all
};

/// `draw`: uniform in [0, 1); tokens take their shares of it in descending order of their logits. Throws
/// pp::Error (run) for a logit that is no number.
std::int64_t choose_token(std::span<const double> logits, const TokenRule& rule, double draw);

}  // namespace pp::run
