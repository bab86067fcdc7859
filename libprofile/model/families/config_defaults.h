// What Hugging Face's configurations say by saying nothing, and the keys that say nothing of what a model
// computes. Private to the families.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "libprofile/core/json_reader.h"

namespace pp::model {

/// What transformers' configuration classes take where the document is silent.
struct ConfigDefaults {
  std::string_view type;
  bool tied = false;
  std::int64_t padding = -1;    ///< -1: none
  std::int64_t groups = 0;      ///< 0: as many as heads
  std::int64_t head_width = 0;  ///< 0: width / heads
  std::int64_t window = 0;
  double rope_base = 10000;
  double eps = 1e-6;
};

/// Of the document's model_type. Throws pp::Error (data) for one that is not built.
const ConfigDefaults& config_defaults(const Json& config);

/// Where a model comes from, how it is stored, trained, run and sampled.
std::span<const std::string_view> neutral_keys();

}  // namespace pp::model
