// Rotary positions of a config.json: rope_parameters as transformers 5 writes them, or rope_theta and
// rope_scaling as before. Private to the families.
#pragma once

#include <cstdint>
#include <string_view>

#include "libprofile/core/ops/attributes.h"
#include "libprofile/model/families/config_reader.h"

namespace pp::model {

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

/// Adds the attributes of grouped_query_attention. Refused by name: scalings that follow the length of the
/// sequence (dynamic, longrope), and unknown ones.
void read_rope(ConfigReader& config, const RopeDefaults& defaults, Attributes& attributes);

}  // namespace pp::model
