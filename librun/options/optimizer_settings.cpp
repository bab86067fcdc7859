#include "librun/options/optimizer_settings.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "libprofile/core/error.h"
#include "librun/options/settings.h"

namespace pp::run {

namespace {

using plan::OptimizerName;

enum class Range { below_one, positive, not_negative };

struct Row {
  std::string_view name;
  std::optional<double> RunOptions::*given;
  Range range;
  std::vector<std::pair<OptimizerName, double>> defaults;  ///< of those that have it, torch.optim's but sgd's

  std::optional<double> default_of(OptimizerName optimizer) const {
    const auto found = std::ranges::find(defaults, optimizer, &std::pair<OptimizerName, double>::first);
    return found == defaults.end() ? std::nullopt : std::optional(found->second);
  }
};

const std::vector<Row>& rows() {
  using enum OptimizerName;
  static const std::vector<Row> all{
      {"momentum", &RunOptions::momentum, Range::below_one, {{sgd, 0.9}, {rmsprop, 0}}},
      {"beta1", &RunOptions::beta1, Range::below_one, {{adam, 0.9}, {adamw, 0.9}}},
      {"beta2", &RunOptions::beta2, Range::below_one, {{adam, 0.999}, {adamw, 0.999}}},
      {"alpha", &RunOptions::alpha, Range::below_one, {{rmsprop, 0.99}}},
      {"epsilon",
       &RunOptions::epsilon,
       Range::positive,
       {{adam, 1e-8}, {adamw, 1e-8}, {rmsprop, 1e-8}, {adagrad, 1e-10}}},
      {"lr_decay", &RunOptions::lr_decay, Range::not_negative, {{adagrad, 0}}},
  };
  return all;
}

void check_range(const Row& row, double value) {
  switch (row.range) {
    case Range::below_one: return require(value >= 0 && value < 1, row.name, value, "in [0, 1)");
    case Range::positive: return require(std::isfinite(value) && value > 0, row.name, value, "above 0");
    case Range::not_negative: return require(std::isfinite(value) && value >= 0, row.name, value, "0 or more");
  }
}

std::string option_of(std::string_view name) {
  std::string text = "--" + std::string(name);
  std::ranges::replace(text, '_', '-');
  return text;
}

[[noreturn]] void refuse(std::string_view name, OptimizerName optimizer, const std::string& others) {
  std::string has;
  for (const Row& row : rows()) {
    if (row.default_of(optimizer)) has.append(has.empty() ? "" : ", ").append(option_of(row.name));
  }
  throw Error(ErrorKind::usage, option_of(name) + ": the plan's optimizer " + std::string(name_of(optimizer)) +
                                    " has " + has + "; leave it out, or plan with --optimizer " + others);
}

std::string owners_of(const Row& row) {
  std::string names;
  for (const auto& [name, value] : row.defaults)
    names.append(names.empty() ? "" : " or ").append(name_of(name));
  return names;
}

}  // namespace

std::vector<std::pair<std::string_view, double>> optimizer_settings(OptimizerName name,
                                                                    const RunOptions& options) {
  std::vector<std::pair<std::string_view, double>> settings;
  for (const Row& row : rows()) {
    const std::optional<double> fallback = row.default_of(name), given = options.*row.given;
    if (given) check_range(row, *given);
    if (given && !fallback) refuse(row.name, name, owners_of(row));
    if (fallback) settings.emplace_back(row.name, given.value_or(*fallback));
  }
  if (options.nesterov && name != OptimizerName::sgd) refuse("nesterov", name, "sgd");
  if (options.nesterov && settings.front().second == 0)
    throw Error(ErrorKind::usage, "--nesterov: needs a momentum above 0, found 0; leave one of the two out");
  return settings;
}

OptimizerState optimizer_state(OptimizerName name, const RunOptions& options) {
  double momentum = 0;
  for (const auto& [setting, value] : optimizer_settings(name, options)) {
    if (setting == "momentum") momentum = value;
  }
  switch (name) {
    case OptimizerName::sgd:
      if (momentum == 0) return {};
      return {.slots = {"momentum_buffer"}, .ratio = 1, .has_direction = true};
    case OptimizerName::adam:
    case OptimizerName::adamw:
      return {.slots = {"exp_avg", "exp_avg_sq", "step"}, .ratio = 2, .has_direction = true};
    case OptimizerName::rmsprop:
      if (momentum == 0) return {.slots = {"square_avg"}, .ratio = 1};
      return {.slots = {"square_avg", "momentum_buffer"}, .ratio = 2, .has_direction = true};
    case OptimizerName::adagrad: return {.slots = {"sum", "step"}, .ratio = 1};
  }
  throw Error(ErrorKind::internal, "no such optimizer");
}

}  // namespace pp::run
