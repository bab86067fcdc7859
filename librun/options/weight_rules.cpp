#include "librun/options/weight_rules.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "libprofile/core/error.h"

namespace pp::run {
namespace {

constexpr double kMostFactor = 1e6;

[[noreturn]] void refuse_rule(const std::string& message) { throw Error(ErrorKind::usage, message); }

/// Of the whole name, in linear space and at most length times length steps.
bool matches_whole(std::string_view pattern, std::string_view name) {
  std::size_t p = 0, n = 0, star = std::string_view::npos, taken = 0;
  while (n < name.size()) {
    if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n]) && pattern[p] != '*') {
      ++p, ++n;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++taken;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

std::vector<std::string_view> parts(std::string_view text, std::string_view option) {
  std::vector<std::string_view> found;
  while (true) {
    const std::size_t comma = text.find(',');
    found.push_back(text.substr(0, comma));
    if (found.back().empty())
      refuse_rule(std::string(option) + ": an empty pattern; write patterns with commas between");
    if (comma == std::string_view::npos) return found;
    text.remove_prefix(comma + 1);
  }
}

std::vector<std::string> trained_names(const ResolvedModel& model) {
  std::vector<std::string> names;
  for (int layer = 0; layer < model.layer_count(); ++layer) {
    const ResolvedLayer& resolved = model.layers[static_cast<std::size_t>(layer)];
    if (resolved.weights_layer != layer) continue;
    for (std::size_t p = 0; p < resolved.parameters.size(); ++p)
      if (resolved.trained[p]) names.push_back(parameter_name(model, layer, p));
  }
  return names;
}

void check_pattern(std::string_view option, const std::string& pattern, const std::vector<std::string>& names) {
  if (std::ranges::any_of(names, [&](const std::string& name) { return matches(pattern, name); })) return;
  std::string some;
  for (std::size_t i = 0; i < std::min<std::size_t>(names.size(), 3); ++i)
    some += (i > 0 ? ", " : "") + names[i];
  refuse_rule(std::string(option) + ": no trained parameter matches \"" + pattern + "\"; their names are " +
              some + (names.size() > 3 ? ", ..." : "") +
              "; a pattern stands anywhere in a name, one with * or ? is all of it");
}

}  // namespace

bool matches(std::string_view pattern, std::string_view name) {
  if (pattern.find_first_of("*?") != std::string_view::npos) return matches_whole(pattern, name);
  return name.find(pattern) != std::string_view::npos;
}

bool WeightRules::decays(std::string_view name) const {
  return std::ranges::none_of(no_decay, [&](const std::string& pattern) { return matches(pattern, name); });
}

double WeightRules::rate_factor(std::string_view name) const {
  const auto found =
      std::ranges::find_if(rate_factors, [&](const auto& rule) { return matches(rule.first, name); });
  return found == rate_factors.end() ? 1.0 : found->second;
}

std::vector<std::string> parse_patterns(std::string_view text) {
  const std::vector<std::string_view> found = parts(text, "--no-decay");
  return {found.begin(), found.end()};
}

std::vector<std::pair<std::string, double>> parse_rate_factors(std::string_view text) {
  std::vector<std::pair<std::string, double>> factors;
  for (const std::string_view part : parts(text, "--lr-factors")) {
    const std::size_t equals = part.rfind('=');
    const std::string_view number = equals == std::string_view::npos ? "" : part.substr(equals + 1);
    double factor = -1;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), factor);
    if (equals == 0 || error != std::errc() || end != number.data() + number.size() ||
        !(factor >= 0 && factor <= kMostFactor)) {
      refuse_rule("--lr-factors: \"" + std::string(part) +
                  "\" is no PATTERN=FACTOR with a factor from 0 to 1000000; write embed=0.1,layers.0.*=0.5");
    }
    factors.emplace_back(part.substr(0, equals), factor);
  }
  return factors;
}

std::string text_of_patterns(const std::vector<std::string>& patterns) {
  std::string text;
  for (const std::string& pattern : patterns) text.append(text.empty() ? "" : ",").append(pattern);
  return text;
}

std::string text_of_factors(const std::vector<std::pair<std::string, double>>& rate_factors) {
  std::string text;
  for (const auto& [pattern, factor] : rate_factors)
    text.append(text.empty() ? "" : ",").append(pattern).append("=").append(Json(factor).dump());
  return text;
}

void check_rules(const WeightRules& rules, const ResolvedModel& model) {
  const std::vector<std::string> names = trained_names(model);
  for (const std::string& pattern : rules.no_decay) check_pattern("--no-decay", pattern, names);
  for (const auto& [pattern, factor] : rules.rate_factors) check_pattern("--lr-factors", pattern, names);
}

}  // namespace pp::run
