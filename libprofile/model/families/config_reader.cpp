#include "libprofile/model/families/config_reader.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "libprofile/core/error.h"
#include "libprofile/core/ops/attributes.h"
#include "libprofile/model/families/decoder_rows.h"

namespace pp::model {

namespace {

using namespace std::string_view_literals;

constexpr std::array kExperts{"num_experts"sv,          "num_local_experts"sv,   "n_routed_experts"sv,
                              "num_experts_per_tok"sv,  "n_shared_experts"sv,    "moe_intermediate_size"sv,
                              "router_aux_loss_coef"sv, "decoder_sparse_step"sv, "output_router_logits"sv};

}  // namespace

ConfigReader::ConfigReader(const Json& json, std::string pointer, std::string who)
    : json_(json), pointer_(pointer), who_(std::move(who)), reader_(json, std::move(pointer)) {}

bool ConfigReader::mentioned(std::string_view key) {
  known_.emplace(key);
  return json_.contains(key);
}

bool ConfigReader::given(std::string_view key) { return mentioned(key) && !json_[std::string(key)].is_null(); }

std::int64_t ConfigReader::integer(std::string_view key, IntegerRange range) {
  known_.emplace(key);
  return reader_.integer(key, range);
}

std::int64_t ConfigReader::integer_or(std::string_view key, std::int64_t otherwise, IntegerRange range) {
  return given(key) ? integer(key, range) : otherwise;
}

double ConfigReader::number(std::string_view key, NumberRange range) {
  known_.emplace(key);
  return reader_.number(key, range);
}

double ConfigReader::number_or(std::string_view key, double otherwise, NumberRange range) {
  return given(key) ? number(key, range) : otherwise;
}

bool ConfigReader::boolean_or(std::string_view key, bool otherwise) {
  return given(key) ? reader_.boolean(key) : otherwise;
}

std::string ConfigReader::text_or(std::string_view key, std::string otherwise) {
  return given(key) ? reader_.text(key) : std::move(otherwise);
}

std::vector<std::string> ConfigReader::texts(std::string_view key) {
  known_.emplace(key);
  return reader_.texts(key);
}

std::vector<std::int64_t> ConfigReader::integers(std::string_view key, IntegerRange range) {
  known_.emplace(key);
  return reader_.integers(key, range);
}

ConfigReader ConfigReader::object(std::string_view key) {
  known_.emplace(key);
  return {json_[std::string(key)], append_pointer(pointer_, key), who_};
}

void ConfigReader::require(std::string_view key, bool value) {
  if (boolean_or(key, value) == value) return;
  fail(key, std::string("must be ") + (value ? "true" : "false") + "; " + who_ + " is built only so");
}

void ConfigReader::pass_over(std::span<const std::string_view> keys) {
  known_.insert(keys.begin(), keys.end());
}

void ConfigReader::fail(std::string_view key, const std::string& message) const { reader_.fail(key, message); }

void ConfigReader::finish() const {
  for (const auto& [key, value] : json_.items()) {
    if (known_.contains(key) || value.is_null()) continue;
    if (std::ranges::find(kExperts, key) != kExperts.end()) {
      fail(key, "is of a mixture of experts, which " + who_ + " is not; those of " + mixture_families() +
                    " are read");
    }
    if (key == "quantization_config")
      fail(key, "quantized weights are not read; give the configuration of the model before quantization");
    fail(key, "is not a key that " + who_ +
                  " is built by; remove it if it changes nothing of what the model computes, else bring the "
                  "module in "
                  "by scripts/import-torch");
  }
}

namespace {

using namespace std::string_view_literals;

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

void refuse_type(const std::string& type, const Json& config) {
  const bool experts =
      std::ranges::any_of(kExperts, [&](std::string_view key) { return config.contains(key); });
  std::string names;
  for (const DecoderRow& row : decoder_rows()) names.append(names.empty() ? "" : ", ").append(row.type);
  throw Error(ErrorKind::data,
              "/model_type: \"" + type + "\" is not built" +
                  (experts ? ": its layers are another mixture of experts than those of " + mixture_families() +
                                 ", which are read"
                           : "; use one of " + names + ", or bring the module in by scripts/import-torch"));
}

std::span<const std::string_view> neutral_keys() { return kNeutral; }

double yarn_magnitude(double factor, double weight) {
  return factor <= 1 ? 1 : 0.1 * weight * std::log(factor) + 1;
}

namespace {

constexpr NumberRange kFactors{1e-6, 1e6};

double rope_magnitude(ConfigReader& rope, double factor) {
  if (rope.given("attention_factor")) return rope.number("attention_factor", kFactors);
  const double one = rope.number_or("mscale", 0, {0, 1e6}), all = rope.number_or("mscale_all_dim", 0, {0, 1e6});
  return one > 0 && all > 0 ? yarn_magnitude(factor, one) / yarn_magnitude(factor, all)
                            : yarn_magnitude(factor);
}

/// The longest wavelengths were learned within so many positions.
std::int64_t original_length(ConfigReader& config, ConfigReader& rope, std::int64_t positions) {
  constexpr IntegerRange kLengths{1, 1'000'000'000};
  const std::int64_t within = rope.integer_or("original_max_position_embeddings", positions, kLengths);
  return config.integer_or("original_max_position_embeddings", within, kLengths);
}

void read_scaling(ConfigReader& config, ConfigReader& rope, RotaryScaling scaling, const RopeDefaults& defaults,
                  Attributes& attributes) {
  attributes.emplace("rotary_scaling", std::string(name_of(scaling)));
  if (scaling == RotaryScaling::linear) {
    attributes.emplace("rotary_factor", rope.number("factor", kFactors));
    return;
  }
  const std::int64_t original = original_length(config, rope, defaults.positions);
  attributes.emplace("rotary_original_length", original);
  if (scaling == RotaryScaling::llama3) {
    attributes.emplace("rotary_factor", rope.number("factor", kFactors));
    attributes.emplace("rotary_low_freq_factor", rope.number("low_freq_factor", kFactors));
    attributes.emplace("rotary_high_freq_factor", rope.number("high_freq_factor", kFactors));
    return;
  }
  const double stretched = static_cast<double>(defaults.positions) / static_cast<double>(original);
  const double factor = rope.number_or("factor", stretched, kFactors);
  attributes.emplace("rotary_factor", factor);
  attributes.emplace("rotary_magnitude", rope_magnitude(rope, factor));
  attributes.emplace("rotary_beta_fast", rope.number_or("beta_fast", 32, kFactors));
  attributes.emplace("rotary_beta_slow", rope.number_or("beta_slow", 1, kFactors));
  attributes.emplace("rotary_truncate", rope.boolean_or("truncate", true));
}

/// Where a key may stand in two places, the inner one counts.
double inner_or_outer(ConfigReader& config, std::optional<ConfigReader>& rope, std::string_view inner,
                      std::string_view outer, double otherwise, NumberRange range) {
  const double outside = config.number_or(outer, otherwise, range);
  return rope ? rope->number_or(inner, outside, range) : outside;
}

}  // namespace

void read_rope(ConfigReader& config, const RopeDefaults& defaults, Attributes& attributes) {
  const bool before = config.given("rope_scaling"), now = config.given("rope_parameters");
  if (before && now) config.fail("rope_scaling", "stands beside rope_parameters; give one of them");
  const std::string_view key = before ? "rope_scaling" : "rope_parameters";
  std::optional<ConfigReader> rope;
  if (before || now) rope.emplace(config.object(key));
  const double base =
      inner_or_outer(config, rope, "rope_theta", defaults.base_key, defaults.base, {1e-3, 1e15});
  const double share =
      inner_or_outer(config, rope, "partial_rotary_factor", defaults.share_key, defaults.share, {0, 1});
  // Later versions wrote these beside the family's own.
  if (config.given("rope_theta") && config.number("rope_theta", {1e-3, 1e15}) != base)
    config.fail("rope_theta", "is another than " + std::string(key) + " or " + std::string(defaults.base_key) +
                                  " say; give one of them");
  if (config.given("partial_rotary_factor") && config.number("partial_rotary_factor", {0, 1}) != share)
    config.fail("partial_rotary_factor", "is another than " + std::string(key) + " or " +
                                             std::string(defaults.share_key) + " say; give one of them");
  if (!defaults.partial && share != 1)
    config.fail(defaults.share_key, "must be 1: " + config.who() + " turns whole heads");
  const std::string old_type = rope ? rope->text_or("type", "default") : "default";
  const std::string type = rope ? rope->text_or("rope_type", old_type) : "default";
  // transformers takes as many pairs as half the turned width has, rounded up, and divides by the width itself.
  const auto turned = static_cast<std::int64_t>(static_cast<double>(defaults.head_width) * share);
  const std::int64_t dim = (turned + 1) / 2 * 2;
  if (dim > defaults.head_width) {
    config.fail(defaults.share_key == "rotary_pct" ? "rotary_pct" : "head_dim",
                "heads of " + std::to_string(defaults.head_width) +
                    " elements have no pairs to turn; give an even width");
  }
  attributes.emplace("rotary_dim", dim);
  if (turned != dim) attributes.emplace("rotary_exponent_dim", turned);
  attributes.emplace("rotary_base", base);
  if (type == "default") {
    if (rope) {
      // transformers 5 keeps the key it has added to all of them.
      rope->mentioned("original_max_position_embeddings");
      rope->finish();
    }
    return;
  }
  const std::optional<RotaryScaling> scaling = find_enum<RotaryScaling>(type);
  if (!scaling || *scaling == RotaryScaling::none || !defaults.scaled) {
    config.fail(key,
                "the scaling \"" + type + "\" of " + config.who() + " is not built" +
                    (type == "dynamic" || type == "longrope" || type == "su"
                         ? ": it follows the length of each sequence"
                         : "; use default" + std::string(defaults.scaled ? ", linear, llama3 or yarn" : "")));
  }
  read_scaling(config, *rope, *scaling, defaults, attributes);
  rope->finish();
}

}  // namespace pp::model
