#include "librun/infer/choose_token.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "libprofile/core/error.h"

namespace pp::run {

std::int64_t choose_token(std::span<const double> logits, const TokenRule& rule, double draw) {
  const auto nan = std::ranges::find_if(logits, [](double logit) { return std::isnan(logit); });
  if (nan != logits.end()) {
    throw Error(ErrorKind::run, "the logit of token " + std::to_string(nan - logits.begin()) +
                                    " is not a number; check the weights");
  }
  if (rule.temperature == 0) return std::ranges::max_element(logits) - logits.begin();
  std::vector<std::int64_t> tokens(logits.size());
  std::iota(tokens.begin(), tokens.end(), std::int64_t{0});
  const auto logit = [&](std::int64_t token) { return logits[static_cast<std::size_t>(token)]; };
  std::ranges::stable_sort(tokens, std::greater{}, logit);
  if (rule.top_k > 0) tokens.resize(std::min(tokens.size(), static_cast<std::size_t>(rule.top_k)));
  const auto weight = [&](std::int64_t token) {
    const double largest = logit(tokens.front());
    return logit(token) == largest ? 1 : std::exp((logit(token) - largest) / rule.temperature);
  };
  double sum = 0;
  for (const std::int64_t token : tokens) sum += weight(token);
  double left = draw * sum;
  for (const std::int64_t token : tokens) {
    left -= weight(token);
    if (left < 0) return token;
  }
  return tokens.back();
}

}  // namespace pp::run
