// The options of an inference, a row each.
#include "librun/infer/options.h"

#include "libprofile/core/options.h"

namespace pp::run {

namespace {

using enum Recorded;
constexpr double kMost = 1e9;

constexpr auto kInfer = options(
    option<&InferOptions::subset>("--subset", "of a folder: training or test; default: test where there is one",
                                  {.group = "Data", .value = "NAME", .recorded = told}),
    option<&InferOptions::micro_batch>(
        "--micro-batch-size", "samples that go through the stages together; default: the plan's micro-batch",
        {.group = "Model", .least = 1, .most = kMost}),
    option<&InferOptions::outputs>(
        "-o,--output", "write the outputs (or sequences) as safetensors by name, a row for each sample",
        {.group = "Results", .value = "FILE", .required = true}));

using Generation = GenerationOptions;
constexpr auto kGeneration = options(
    option<&Generation::new_tokens>(
        "--max-new-tokens", "make tokens one after the other, up to this many a sequence",
        {.group = "Generation", .least = 1, .most = kMost, .recorded = told, .recorded_always = true}),
    option<&Generation::prompt_length>("--prompt-length",
                                       "tokens of each sample in the data, which sequences begin with",
                                       {.least = 1, .most = kMost, .recorded = told}),
    option<&Generation::start_token>(
        "--start-token", "sequences begin with this one; the data have no such input", {.recorded = told}),
    option<&Generation::end_token>("--end-token", "a sequence ends behind it", {.recorded = told}),
    option<&Generation::pad_token>("--pad-token", "a prompt ends where only this one follows",
                                   {.recorded = told}),
    option<&Generation::sequence_input>("--sequence-input", "the input that grows; default: the one that can",
                                        {.value = "NAME", .recorded = told}),
    option<&Generation::temperature>("--temperature",
                                     "0: the likeliest token; above: drawn, the flatter the higher",
                                     {.least = 0, .recorded = told, .recorded_always = true}),
    option<&Generation::cache>(
        "!--no-cache", "compute all positions again for each token, also where keys and values could be kept",
        {.recorded = told}),
    option<&Generation::text>("--text", "print the sequences, whose tokens are bytes, as text"),
    option<&Generation::top_k>("--top-k", "draw from this many likeliest tokens; 0: from all",
                               {.least = 0, .most = kMost, .recorded = told}));

}  // namespace

OptionRows<InferOptions> infer_options() { return kInfer; }
OptionRows<GenerationOptions> generation_options() { return kGeneration; }

Settings settings_of(const InferOptions& options) {
  Settings settings;
  add_settings(execution_options(), options, settings);
  add_settings(infer_options(), options, settings);
  if (!options.initial_weights.empty()) settings["initial_weights"] = options.initial_weights.string();
  if (options.random_weights) settings["random_weights"] = true;
  if (options.generation) add_settings(generation_options(), *options.generation, settings);
  return settings;
}

}  // namespace pp::run
