// What a training was asked for, by name, as reports and checkpoints carry it; and one wording for numbers
// out of range: `momentum = 1: must be in [0, 1)`.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <variant>

#include "libprofile/core/fields.h"

namespace pp::run {

/// Each of its own type in the document.
using Setting = std::variant<bool, std::int64_t, double, std::string>;
using Settings = std::map<std::string, Setting>;

/// The keys of a document that are settings, or the seed.
extern const ValueType kSettings, kSeed;

Json to_json(const Settings& settings);

/// `0.05`, `cosine`, `true`.
std::string setting_text(const Setting& setting);

/// Throws pp::Error (usage) unless `holds`.
void require(bool holds, std::string_view name, double value, std::string_view limit);

}  // namespace pp::run
