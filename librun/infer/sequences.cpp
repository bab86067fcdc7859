#include "librun/infer/sequences.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "libprofile/core/error.h"
#include "libprofile/core/model/model_traits.h"
#include "libprofile/core/options.h"
#include "librun/options/settings.h"

namespace pp::run {

namespace {

/// Every input that grows together with an output.
std::vector<SequencePlace> places_of(const ResolvedModel& model) {
  std::vector<SequencePlace> places;
  for (std::size_t k = 0; k < model.outputs.size(); ++k) {
    const TensorSource& source = model.outputs[k];
    const ResolvedLayer& layer = model.layers[static_cast<std::size_t>(source.index)];
    const Shape& shape = layer.outputs[static_cast<std::size_t>(source.output)].shape;
    for (std::size_t i = 0; shape.size() == 2 && i < model.graph.inputs.size(); ++i) {
      const TensorType& input = model.graph.inputs[i].type;
      if (input.dtype == DType::int64 && input.shape == Shape{shape[0]})
        places.push_back({i, k, shape[0], shape[1]});
    }
  }
  return places;
}

void check_token(const char* option, std::optional<std::int64_t> token, std::int64_t limit) {
  if (!token || (*token >= 0 && *token < limit)) return;
  refuse(ErrorKind::usage, std::string(option) + " " + std::to_string(*token) + ": the model has tokens 0 to " +
                               std::to_string(limit - 1));
}

}  // namespace

SequencePlace find_sequence(const ResolvedModel& model, const std::string& wanted) {
  std::vector<SequencePlace> places = places_of(model);
  const auto name = [&](const SequencePlace& place) { return model.graph.inputs[place.input].name; };
  std::string names;
  for (const SequencePlace& place : places) names.append(names.empty() ? "" : ", ").append(name(place));
  if (!wanted.empty()) std::erase_if(places, [&](const SequencePlace& place) { return name(place) != wanted; });
  if (places.size() == 1) return places.front();
  const std::string who = "model \"" + model.graph.name + "\" ";
  if (names.empty()) {
    refuse(ErrorKind::data, who +
                                "makes no tokens: it has no output [length, tokens] for an int64 input "
                                "[length]; leave out --max-new-tokens");
  }
  if (places.empty())
    refuse(ErrorKind::usage, "--sequence-input: " + who + "has no \"" + wanted + "\" that grows; use " + names);
  refuse(ErrorKind::usage,
         who + "has several inputs that could grow; choose with --sequence-input one of " + names);
}

void check_generation(const ResolvedModel& model, const SequencePlace& place,
                      const GenerationOptions& options) {
  require(options.new_tokens >= 1, "max_new_tokens", options.new_tokens, "at least 1");
  check_ranges(generation_options(), options);
  const std::string name = "\"" + model.graph.inputs[place.input].name + "\"";
  if (options.start_token.has_value() == (options.prompt_length > 0)) {
    refuse(ErrorKind::usage, "how sequences of " + name +
                                 " begin: give one of --prompt-length (tokens of each sample in the data) and "
                                 "--start-token");
  }
  const std::int64_t prompt = std::max(1, options.prompt_length);
  if (prompt + options.new_tokens - 1 > place.length) {
    refuse(ErrorKind::usage, "--max-new-tokens " + std::to_string(options.new_tokens) + " after " +
                                 std::to_string(prompt) + ": the model's " + name + " has " +
                                 std::to_string(place.length) + " positions, which leaves " +
                                 std::to_string(std::max<std::int64_t>(0, place.length - prompt + 1)));
  }
  const std::int64_t rows = index_limit(model, {TensorSource::Kind::input, static_cast<int>(place.input), 0});
  if (rows > 0 && place.tokens > rows) {
    refuse(ErrorKind::data, "model \"" + model.graph.name + "\" tells " + std::to_string(place.tokens) +
                                " tokens apart, its input " + name + " takes " + std::to_string(rows));
  }
  const std::int64_t limit = rows > 0 ? rows : place.tokens;
  check_token("--start-token", options.start_token, limit);
  check_token("--end-token", options.end_token, place.tokens);
  check_token("--pad-token", options.pad_token, limit);
}

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
