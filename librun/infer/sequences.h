// Which input of a model grows by a token, and which output says the next one. Free of Torch.
#pragma once

#include <cstdint>
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

}  // namespace pp::run
