// What an optimizer is given and keeps, by its row.
#include "libprofile/core/optimizer_table.h"

#include <charconv>
#include <cmath>

#include "libprofile/core/error.h"

namespace pp {

namespace {

const OptimizerSetting* find_setting(const OptimizerRow& row, std::string_view name) {
  const auto found = std::ranges::find(row.settings, name, &OptimizerSetting::name);
  return found == row.settings.end() ? nullptr : &*found;
}

std::string number_text(double value) {
  std::array<char, 32> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

/// `momentum = 1: must be in [0, 1)`
void check_range(const OptimizerSetting& setting, double value) {
  const auto require = [&](bool holds, std::string_view limit) {
    if (holds) return;
    throw Error(ErrorKind::usage,
                std::string(setting.name) + " = " + number_text(value) + ": must be " + std::string(limit));
  };
  using enum OptimizerSetting::Range;
  switch (setting.range) {
    case below_one: return require(value >= 0 && value < 1, "in [0, 1)");
    case positive: return require(std::isfinite(value) && value > 0, "above 0");
    case not_negative: return require(std::isfinite(value) && value >= 0, "0 or more");
    case flag: return require(value == 0 || value == 1, "0 or 1");
  }
}

[[noreturn]] void refuse(std::string_view setting, const OptimizerRow& row) {
  std::string has, others;
  for (const OptimizerSetting& own : row.settings)
    has.append(has.empty() ? "" : ", ").append(option_of(own.name));
  for (const OptimizerRow& other : kOptimizerRows)
    if (find_setting(other, setting) != nullptr) others.append(others.empty() ? "" : " or ").append(other.text);
  throw Error(ErrorKind::usage, option_of(setting) + ": the plan's optimizer " + std::string(row.text) +
                                    " has " + has + "; leave it out, or plan with --optimizer " + others);
}

}  // namespace

std::string option_of(std::string_view setting) {
  std::string text = "--" + std::string(setting);
  std::ranges::replace(text, '_', '-');
  return text;
}

std::string help_of(std::string_view setting) {
  std::vector<std::pair<std::string, std::string>> owners;  // and what is said of them
  bool has_default = false;
  for (const OptimizerRow& row : kOptimizerRows) {
    const OptimizerSetting* own = find_setting(row, setting);
    if (own == nullptr) continue;
    has_default = own->range != OptimizerSetting::Range::flag;
    std::string said(own->help);
    if (has_default) said += (said.empty() ? "" : ", ") + number_text(own->fallback);
    const auto same = std::ranges::find(owners, said, &std::pair<std::string, std::string>::second);
    if (same == owners.end()) {
      owners.emplace_back(row.text, said);
    } else {
      same->first.append(", ").append(row.text);
    }
  }
  std::string text;
  for (const auto& [names, said] : owners) text += (text.empty() ? "" : "; ") + names + ": " + said;
  return text + (has_default ? " unless given" : "");
}

OptimizerSettings settings_of(OptimizerName name, const OptimizerSettings& given) {
  const OptimizerRow& row = row_of(name);
  OptimizerSettings all;
  for (const OptimizerSetting& setting : row.settings) all.emplace(setting.name, setting.fallback);
  for (const auto& [key, value] : given) {
    if (!value) continue;
    const OptimizerSetting* setting = find_setting(row, key);
    for (const OptimizerRow& other : kOptimizerRows)
      if (setting == nullptr) setting = find_setting(other, key);
    if (setting == nullptr) throw Error(ErrorKind::internal, "no optimizer has a setting " + key);
    check_range(*setting, *value);
    if (setting->range == OptimizerSetting::Range::flag && *value == 0) continue;
    if (!all.contains(key)) refuse(key, row);
    all[key] = value;
  }
  for (const OptimizerSetting& setting : row.settings) {
    if (setting.needs.empty() || all.find(setting.name)->second == 0.0) continue;
    if (all.find(setting.needs)->second == 0.0)
      throw Error(ErrorKind::usage, option_of(setting.name) + ": needs a " + std::string(setting.needs) +
                                        " above 0, found 0; leave one of the two out");
  }
  return all;
}

std::vector<OptimizerSlotRow> slots_of(OptimizerName name, const OptimizerSettings& given) {
  const OptimizerSettings settings = settings_of(name, given);
  std::vector<OptimizerSlotRow> slots;
  for (const OptimizerSlotRow& slot : row_of(name).slots)
    if (slot.with.empty() || settings.find(slot.with)->second != 0.0) slots.push_back(slot);
  return slots;
}

double state_ratio_of(OptimizerName name, const OptimizerSettings& given) {
  const std::vector<OptimizerSlotRow> slots = slots_of(name, given);
  return static_cast<double>(
      std::ranges::count_if(slots, [](const auto& slot) { return slot.name != "step"; }));
}

bool has_direction(OptimizerName name, const OptimizerSettings& given) {
  return std::ranges::any_of(slots_of(name, given), &OptimizerSlotRow::is_direction);
}

}  // namespace pp
