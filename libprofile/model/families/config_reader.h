// Reads the keys of a config.json one by one, with null as missing, and knows which were read, and which say
// nothing of what a model computes.
// Private to the families.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "libprofile/core/json_reader.h"
#include "libprofile/core/ops/attributes.h"

namespace pp::model {

class ConfigReader {
 public:
  /// `json` must outlive the reader. `who` reads it, for messages: `llama`.
  ConfigReader(const Json& json, std::string pointer, std::string who);

  const std::string& who() const { return who_; }
  /// There, and not null. Makes the key known.
  bool given(std::string_view key);
  /// There, also as null.
  bool mentioned(std::string_view key);

  std::int64_t integer(std::string_view key, IntegerRange range);
  std::int64_t integer_or(std::string_view key, std::int64_t otherwise, IntegerRange range);
  double number(std::string_view key, NumberRange range);
  double number_or(std::string_view key, double otherwise, NumberRange range);
  bool boolean_or(std::string_view key, bool otherwise);
  std::string text_or(std::string_view key, std::string otherwise);
  std::vector<std::string> texts(std::string_view key);
  std::vector<std::int64_t> integers(std::string_view key, IntegerRange range);
  /// Its own reader's unknown keys are for the caller to refuse.
  ConfigReader object(std::string_view key);

  /// Of a key that changes what the model computes, and of which only this value is built.
  void require(std::string_view key, bool value);
  /// Keys that change nothing here.
  void pass_over(std::span<const std::string_view> keys);
  [[noreturn]] void fail(std::string_view key, const std::string& message) const;
  /// Refuses keys that are neither known nor null.
  void finish() const;

 private:
  const Json& json_;
  std::string pointer_, who_;
  ObjectReader reader_;
  std::set<std::string, std::less<>> known_;
};

/// Throws pp::Error (data) for a model_type that is not built, whose other keys may say why.
[[noreturn]] void refuse_type(const std::string& type, const Json& config);

/// Where a model comes from, how it is stored, trained, run and sampled.
std::span<const std::string_view> neutral_keys();

/// What the family takes where the document is silent, and what it calls it.
struct RopeDefaults {
  double base = 10000;
  std::string_view base_key = "rope_theta";
  double share = 1;  ///< of a head that is turned
  std::string_view share_key = "partial_rotary_factor";
  bool partial = false;  ///< a share below 1 is built
  bool scaled = true;    ///< scalings are built
  std::int64_t head_width = 1, positions = 1;
};

/// Peng et al., YaRN, 2023, sec. 3.4, with a factor of DeepSeek-V2's configuration: of sines and cosines.
double yarn_magnitude(double factor, double weight = 1);
/// Adds the attributes of grouped_query_attention. Refused by name: scalings that follow the length of the
/// sequence (dynamic, longrope), and unknown ones.
void read_rope(ConfigReader& config, const RopeDefaults& defaults, Attributes& attributes);

}  // namespace pp::model
