#include "libprofile/model/families/config_reader.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "libprofile/core/error.h"

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
      fail(key,
           "mixtures of experts are not built: what sends tokens to experts, and the loss that balances them, "
           "are missing");
    }
    if (key == "quantization_config")
      fail(key, "quantized weights are not read; give the configuration of the model before quantization");
    fail(key, "is not a key that " + who_ +
                  " is built by; remove it if it changes nothing of what the model computes, else bring the "
                  "module in "
                  "by scripts/import-torch");
  }
}

}  // namespace pp::model
