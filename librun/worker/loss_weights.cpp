#include "librun/worker/loss_weights.h"

#include <numeric>

#include "libprofile/device/memory_meter.h"

namespace pp::run {

namespace {

// Steps of a stream overlap; more are counted again.
constexpr std::size_t kKept = 64;

double sum(const std::vector<double>& weights) { return std::accumulate(weights.begin(), weights.end(), 0.0); }

}  // namespace

LossWeight LossWeights::of(const Operation& operation, Step epoch_first, const DataFeed& feed) {
  if (!job_.counts_labels)
    return {static_cast<double>(operation.rows),
            static_cast<double>(job_.setup.length.epoch.step_size(operation.step - epoch_first))};
  const std::vector<double>& step = counted(operation.step, epoch_first, feed);
  return {step[static_cast<std::size_t>(operation.micro_batch)], sum(step)};
}

double LossWeights::of_step(Step step, Step epoch_first, const DataFeed& feed) {
  if (!job_.counts_labels) return job_.setup.length.epoch.step_size(step - epoch_first);
  return sum(counted(step, epoch_first, feed));
}

// The labels are charged to no worker: they are read before an operation and gone when it begins.
const std::vector<double>& LossWeights::counted(Step step, Step epoch_first, const DataFeed& feed) {
  if (const auto known = counted_.find(step); known != counted_.end()) return known->second;
  const profile::ChargeMemory charged{profile::MemoryAccount()};
  const EpochShape& epoch = job_.setup.length.epoch;
  std::int64_t row = epoch.first(epoch.begin(step - epoch_first));
  std::vector<double> weights;
  for (const int rows : epoch.step_sizes(step - epoch_first)) {
    model::Tensors data;
    for (const TensorSource& source : job_.label_count->sources()) data.push_back(feed.rows(source, row, rows));
    weights.push_back((*job_.label_count)(data));
    row += rows;
  }
  if (counted_.size() == kKept) counted_.erase(counted_.begin());
  return counted_[step] = std::move(weights);
}

}  // namespace pp::run
