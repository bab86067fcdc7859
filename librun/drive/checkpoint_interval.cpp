#include "librun/drive/checkpoint_interval.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "librun/report/record.h"

namespace pp::run {

namespace {

void keep_last(std::vector<Seconds>& values, Seconds value, std::size_t most) {
  if (values.size() == most) values.erase(values.begin());
  values.push_back(value);
}

}  // namespace

Seconds best_interval(Seconds cost, Seconds between_failures) {
  const double part = cost / between_failures / 2;
  if (part >= 1) return between_failures;
  const Seconds first_order(std::sqrt(2 * cost.count() * between_failures.count()));
  return first_order * (1 + std::sqrt(part) / 3 + part / 9) - cost;
}

void CheckpointCost::add(Seconds step, bool meanwhile) {
  if (meanwhile) return disturbed_.push_back(step);
  keep_last(undisturbed_, step, kKept);
  if (disturbed_.empty()) return;
  const Seconds all = std::accumulate(disturbed_.begin(), disturbed_.end(), Seconds());
  const Seconds cost = all - static_cast<double>(disturbed_.size()) * undisturbed();
  keep_last(costs_, std::max(kLeast, cost), kKept);
  disturbed_.clear();
}

Seconds CheckpointCost::undisturbed() const { return median(undisturbed_); }

std::optional<Seconds> CheckpointCost::value() const {
  if (costs_.empty()) return std::nullopt;
  return median(costs_);
}

}  // namespace pp::run
