// What an inference is told. Free of Torch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "librun/options/run_options.h"

namespace pp::run {

/// Tokens one after the other, for a model with an output [length, tokens] for an int64 input [length] whose
/// later positions do not matter for earlier ones.
struct GenerationOptions {
  int new_tokens = 0;                                      ///< of each sequence, at most; from 1
  int prompt_length = 0;                                   ///< tokens of each sample in the data
  std::optional<std::int64_t> start_token = std::nullopt;  ///< instead of a prompt: all begin with this one
  std::optional<std::int64_t> end_token = std::nullopt;    ///< a sequence ends behind it
  std::optional<std::int64_t> pad_token = std::nullopt;    ///< a prompt ends where only this one follows
  std::string sequence_input = {};                         ///< the input that grows; empty: the one that can
  double temperature = 0;                                  ///< 0: the likeliest token, else drawn from the seed
  int top_k = 0;  ///< of the likeliest tokens that are drawn from; 0: all
  /// Keys and values of positions that were computed are kept, where the model and the plan allow it.
  bool cache = true;
  bool text = false;  ///< the report has the sequences as text; of a model whose tokens are bytes
};

struct InferOptions : ExecutionOptions {
  /// Safetensors: the model's outputs by name, a row for each sample. Of a generation the sequences, as the
  /// input that grows, and their lengths (`NAME.length`).
  std::filesystem::path outputs;
  std::string subset;  ///< of a folder: `training` or `test`; empty: test where there is one, else training
  /// Samples of a pass; 0: the plan's largest micro-batch, in a generation fewer where that busies more
  /// workers.
  int micro_batch = 0;
  std::optional<GenerationOptions> generation;
};

/// Their rows, beside execution_options().
std::span<const OptionOf<InferOptions>> infer_options();
std::span<const OptionOf<GenerationOptions>> generation_options();

/// What reports say of them.
Settings settings_of(const InferOptions& options);

}  // namespace pp::run
