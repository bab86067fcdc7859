// Weights that depart from the others in decay or learning rate, by patterns of their names: no decay for
// biases and norms, smaller steps for the layers that a pre-trained model begins with. Torch-free.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "libprofile/core/model/model_graph.h"

namespace pp::run {

/// A pattern with `*` (any text) or `?` (any character) is one of the whole name; another one stands anywhere
/// in it.
bool matches(std::string_view pattern, std::string_view name);

struct WeightRules {
  std::vector<std::string> no_decay = {};  ///< patterns
  std::vector<std::pair<std::string, double>> rate_factors =
      {};  ///< a pattern, and what the learning rate is times
  bool empty() const { return no_decay.empty() && rate_factors.empty(); }
  bool decays(std::string_view name) const;
  double rate_factor(std::string_view name) const;  ///< of the first pattern that matches, else 1
  bool operator==(const WeightRules&) const = default;
};

/// `bias,norm`. Throws pp::Error (usage).
std::vector<std::string> parse_patterns(std::string_view text);
/// `embed=0.1,layers.0.*=0.5`. Throws pp::Error (usage).
std::vector<std::pair<std::string, double>> parse_rate_factors(std::string_view text);

/// As they are parsed, for settings.
std::string text_of_patterns(const std::vector<std::string>& patterns);
std::string text_of_factors(const std::vector<std::pair<std::string, double>>& rate_factors);

/// Throws pp::Error (usage) for a pattern that no trained parameter of the model matches.
void check_rules(const WeightRules& rules, const ResolvedModel& model);

}  // namespace pp::run
