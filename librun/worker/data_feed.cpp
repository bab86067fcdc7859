#include "librun/worker/data_feed.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "libprofile/device/compute_device.h"
#include "libprofile/device/hand_over.h"
#include "libprofile/device/memory_meter.h"

namespace pp::run {

namespace {

// Operations whose rows wait for them. A pipeline's first stage begins with several forwards in a row.
constexpr std::size_t kBatchesAhead = 4;

// Steps of a stream overlap; more are counted again.
constexpr std::size_t kKept = 64;

double sum(const std::vector<double>& weights) { return std::accumulate(weights.begin(), weights.end(), 0.0); }

}  // namespace

DataFeed::DataFeed(Job& job, WorkerId worker, at::Device device)
    : job_(job), worker_(worker), device_(device), reads_data_(job.counts_labels) {
  for (std::size_t s = 0; s < job.plan.stages.size(); ++s) {
    if (std::ranges::count(job.plan.stages[s].workers, worker) > 0)
      reads_data_ = reads_data_ || reads(StageId{static_cast<int>(s)});
  }
}

bool DataFeed::reads(StageId stage) const {
  return std::ranges::any_of(job_.wiring[index(stage)].inputs,
                             [](const StageInput& input) { return input.producer < 0; });
}

bool DataFeed::reads(const Operation& operation) const {
  if (operation.op.kind != plan::OpKind::forward && operation.op.kind != plan::OpKind::recompute) return false;
  return reads(operation.op.stage);
}

void DataFeed::begin(const Dataset& data, int epoch, const std::function<std::vector<std::int64_t>()>& order,
                     Cursor cursor) {
  if (!reads_data_) return;
  // The thread inherits the cores of its worker, on which it works while that one waits.
  ahead_ = data.fixed() && (!data.in_memory() || device_.is_cuda());
  if (ahead_ && !read_ahead_) {
    read_ahead_.emplace(job_.coordinator, worker_, kBatchesAhead,
                        [device = device_] { profile::enter_device(device, /*threads=*/1); });
  }
  if (read_ahead_) read_ahead_->begin([] { return std::nullopt; });  // nobody reads `order_` any longer
  const bool same = std::exchange(data_, &data) == &data && epoch_ == epoch;
  epoch_ = epoch;
  if (!same) order_ = order();
  if (!ahead_) return;
  read_ahead_->begin([this, cursor]() mutable -> std::optional<model::Tensors> {
    while (const std::optional<Operation> operation = cursor.next()) {
      if (!reads(*operation)) continue;
      model::Tensors inputs(job_.wiring[index(operation->op.stage)].inputs.size());
      cut(*operation, inputs);
      return inputs;
    }
    return std::nullopt;
  });
}

void DataFeed::cut(const Operation& operation, model::Tensors& inputs) const {
  const std::vector<StageInput>& sources = job_.wiring[index(operation.op.stage)].inputs;
  for (std::size_t i = 0; i < sources.size(); ++i)
    if (sources[i].producer < 0)
      inputs[i] = rows(sources[i].source, operation.first_row, operation.rows).to(device_);
  profile::wait_for(device_);
}

at::Tensor DataFeed::rows(const TensorSource& source, std::int64_t first, int count) const {
  return data_->rows(
      source, std::span(order_).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count)));
}

void DataFeed::await(const Operation& operation) {
  if (!ahead_ || !reads(operation)) return;
  read_ahead_->await([&] { return "its samples of " + data_->source(); });
}

void DataFeed::fill(const Operation& operation, model::Tensors& inputs, const profile::MemoryAccount& memory) {
  if (!reads(operation)) return;
  if (!ahead_) return cut(operation, inputs);
  model::Tensors made = read_ahead_->take();
  for (std::size_t i = 0; i < made.size(); ++i) {
    if (made[i].defined())
      inputs[i] = profile::received(profile::brought_to(device_, std::move(made[i])), memory);
  }
}

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
