#include "libprofile/model/families/config_rope.h"

#include <cmath>
#include <optional>
#include <string>

#include "libprofile/core/ops/choices.h"

namespace pp::model {
namespace {

constexpr NumberRange kFactors{1e-6, 1e6};

// Peng et al., YaRN, 2023, sec. 3.4; with the two factors of DeepSeek-V2's configuration.
double yarn_magnitude(double factor, double weight = 1) {
  return factor <= 1 ? 1 : 0.1 * weight * std::log(factor) + 1;
}

double yarn_magnitude(ConfigReader& rope, double factor) {
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
  attributes.emplace("rotary_magnitude", yarn_magnitude(rope, factor));
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
