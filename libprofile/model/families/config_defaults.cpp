#include "libprofile/model/families/config_defaults.h"

#include <array>
#include <nlohmann/json.hpp>
#include <string>

#include "libprofile/core/error.h"

namespace pp::model {
namespace {

using namespace std::string_view_literals;

constexpr std::array kDefaults{
    ConfigDefaults{.type = "llama"},
    ConfigDefaults{.type = "mistral", .groups = 8, .window = 4096},
    ConfigDefaults{.type = "qwen2", .groups = 32, .window = 4096},
    ConfigDefaults{.type = "qwen3", .groups = 32, .head_width = 128, .window = 4096},
    ConfigDefaults{
        .type = "gemma2", .tied = true, .padding = 0, .groups = 4, .head_width = 256, .window = 4096},
    ConfigDefaults{.type = "phi3", .padding = 32000, .eps = 1e-5},
    ConfigDefaults{.type = "gpt_neox", .eps = 1e-5},
    ConfigDefaults{.type = "opt", .tied = true, .padding = 1, .eps = 1e-5},
    ConfigDefaults{.type = "gpt2", .tied = true, .eps = 1e-5},
    ConfigDefaults{.type = "smollm3", .tied = true, .padding = 128004, .groups = 4, .rope_base = 2e6},
};

constexpr std::array kNeutral{"model_type"sv,
                              "transformers_version"sv,
                              "_name_or_path"sv,
                              "torch_dtype"sv,
                              "dtype"sv,
                              "use_cache"sv,
                              "cache_implementation"sv,
                              "initializer_range"sv,
                              "init_std"sv,
                              "bos_token_id"sv,
                              "eos_token_id"sv,
                              "sep_token_id"sv,
                              "decoder_start_token_id"sv,
                              "output_attentions"sv,
                              "output_hidden_states"sv,
                              "return_dict"sv,
                              "return_dict_in_generate"sv,
                              "chunk_size_feed_forward"sv,
                              "is_decoder"sv,
                              "id2label"sv,
                              "label2id"sv,
                              "problem_type"sv,
                              "num_labels"sv,
                              "finetuning_task"sv,
                              "task_specific_params"sv,
                              "tokenizer_class"sv,
                              "prefix"sv,
                              "pretraining_tp"sv,
                              "auto_map"sv,
                              "attn_implementation"sv,
                              "_attn_implementation"sv,
                              "_flash_attn_2_enabled"sv,
                              "gradient_checkpointing"sv,
                              "classifier_dropout"sv,
                              "torchscript"sv,
                              "use_bfloat16"sv,
                              "tf_legacy_loss"sv,
                              "tie_encoder_decoder"sv,
                              "is_llama_config"sv,
                              "transformers.js_config"sv,
                              "temperature"sv,
                              "top_k"sv,
                              "top_p"sv,
                              "typical_p"sv,
                              "do_sample"sv,
                              "max_length"sv,
                              "min_length"sv,
                              "num_beams"sv,
                              "num_beam_groups"sv,
                              "num_return_sequences"sv,
                              "diversity_penalty"sv,
                              "early_stopping"sv,
                              "length_penalty"sv,
                              "repetition_penalty"sv,
                              "no_repeat_ngram_size"sv,
                              "encoder_no_repeat_ngram_size"sv,
                              "remove_invalid_values"sv,
                              "output_scores"sv};

}  // namespace

const ConfigDefaults& config_defaults(const Json& config) {
  const Json& type = config["model_type"];
  if (!type.is_string()) throw Error(ErrorKind::data, "/model_type: must be a string");
  const auto name = type.get<std::string>();
  std::string names;
  for (const ConfigDefaults& defaults : kDefaults) {
    if (defaults.type == name) return defaults;
    names.append(names.empty() ? "" : ", ").append(defaults.type);
  }
  const bool experts = name.find("moe") != std::string::npos || name.starts_with("mixtral") ||
                       name.starts_with("deepseek") || name == "dbrx" || name == "gpt_oss";
  throw Error(
      ErrorKind::data,
      "/model_type: \"" + name + "\" is not built" +
          (experts ? ": of mixtures of experts, what sends tokens to experts and the loss that balances "
                     "them are missing"
                   : "; use one of " + names + ", or bring the module in by scripts/import-torch"));
}

std::span<const std::string_view> neutral_keys() { return kNeutral; }

}  // namespace pp::model
