// Which input of a model grows by a token, which output says the next one, and which token follows. Free of
// Torch.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "librun/infer/options.h"

namespace pp::run {

struct SequencePlace {
  std::size_t input = 0;   ///< int64 [length]
  std::size_t output = 0;  ///< [length, tokens]: at each position the logits of the next token
  std::int64_t length = 0;
  std::int64_t tokens = 0;
};

/// By the shapes; `wanted`: the name of the input, empty where only one fits. Throws pp::Error (data, usage).
SequencePlace find_sequence(const ResolvedModel& model, const std::string& wanted);

/// That every token and every position that the options lead to is one that the model has. Throws pp::Error
/// (usage).
void check_generation(const ResolvedModel& model, const SequencePlace& place, const GenerationOptions& options);

/// Greedy, or drawn from softmax(logits / temperature) over the largest `top_k` logits.
struct TokenRule {
  double temperature = 0;  ///< 0: the token with the largest logit, the first of equal ones
  int top_k = 0;           ///< 0: all
};

/// `draw`: uniform in [0, 1); tokens take their shares of it in descending order of their logits. Throws
/// pp::Error (run) for a logit that is no number.
std::int64_t choose_token(std::span<const double> logits, const TokenRule& rule, double draw);

}  // namespace pp::run
