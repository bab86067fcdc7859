// Reads the keys of a config.json one by one, with null as missing, and knows which were read. Private to the
// families.
#pragma once

#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "libprofile/core/json_reader.h"

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

}  // namespace pp::model
