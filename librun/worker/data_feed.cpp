#include "librun/worker/data_feed.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "libprofile/device/compute_device.h"
#include "libprofile/device/hand_over.h"
#include "libprofile/device/memory_meter.h"

namespace pp::run {

namespace {

// Operations whose rows wait for them. A pipeline's first stage begins with several forwards in a row.
constexpr std::size_t kBatchesAhead = 4;

// Test samples whose labels are counted together.
constexpr std::int64_t kRowsAtOnce = 256;

// Steps of a stream overlap; more are counted again.
constexpr std::size_t kKept = 64;

using Counts = std::vector<double>;

Counts sum(const std::vector<Counts>& parts) {
  Counts all(parts.front().size(), 0.0);
  for (const Counts& part : parts) std::ranges::transform(all, part, all.begin(), std::plus<>());
  return all;
}

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
  ahead_ = data.fixed() && (!data.in_memory() || device_.is_cuda());
  if (ahead_ && !read_ahead_) {
    // On a CPU the thread inherits the cores of its worker, on which it works while that one waits.
    const int threads = device_.is_cuda() ? job_.setup.cores.threads[index(worker_)] : 1;
    read_ahead_.emplace(job_.coordinator, worker_, kBatchesAhead,
                        [device = device_, threads] { profile::enter_device(device, threads); });
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
      inputs[i] = profile::brought_to(device_, rows(sources[i].source, operation.first_row, operation.rows,
                                                    /*pinned=*/device_.is_cuda()));
  profile::wait_for(device_);
}

at::Tensor DataFeed::rows(const TensorSource& source, std::int64_t first, int count, bool pinned) const {
  return data_->rows(
      source, std::span(order_).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count)),
      pinned);
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
  LossWeight weight{static_cast<double>(operation.rows),
                    static_cast<double>(job_.setup.length.epoch.step_size(operation.step - epoch_first))};
  if (!job_.counts_labels) return weight;
  const std::vector<Counts>& step = counted(operation.step, epoch_first, feed);
  const Counts& own = step[static_cast<std::size_t>(operation.micro_batch)];
  if (!job_.label_count->apart()) return {own.front(), sum(step).front()};
  weight.label_shares = label_shares(own, weight.own, sum(step), weight.all);
  return weight;
}

LossWeight LossWeights::of_evaluation(const Operation& operation, const DataFeed& feed) {
  const std::int64_t samples = job_.test->samples();
  LossWeight weight{static_cast<double>(operation.rows), static_cast<double>(samples)};
  if (!job_.label_count || !job_.label_count->apart()) return weight;
  if (test_.empty()) {
    std::vector<Counts> parts;
    for (std::int64_t row = 0; row < samples; row += kRowsAtOnce)
      parts.push_back(count(row, static_cast<int>(std::min(kRowsAtOnce, samples - row)), feed));
    test_ = sum(parts);
  }
  const Counts own = count(operation.first_row, operation.rows, feed);
  weight.label_shares = label_shares(own, weight.own, test_, weight.all);
  return weight;
}

double LossWeights::of_step(Step step, Step epoch_first, const DataFeed& feed) {
  if (!job_.counts_labels || job_.label_count->apart())
    return job_.setup.length.epoch.step_size(step - epoch_first);
  return sum(counted(step, epoch_first, feed)).front();
}

const std::vector<Counts>& LossWeights::counted(Step step, Step epoch_first, const DataFeed& feed) {
  if (const auto known = counted_.find(step); known != counted_.end()) return known->second;
  const EpochShape& epoch = job_.setup.length.epoch;
  std::int64_t row = epoch.first(epoch.begin(step - epoch_first));
  std::vector<Counts> parts;
  for (const int rows : epoch.step_sizes(step - epoch_first)) {
    parts.push_back(count(row, rows, feed));
    row += rows;
  }
  if (counted_.size() == kKept) counted_.erase(counted_.begin());
  return counted_[step] = std::move(parts);
}

// The labels are charged to no worker: they are read before an operation and gone when it begins.
Counts LossWeights::count(std::int64_t first, int rows, const DataFeed& feed) const {
  const profile::ChargeMemory charged{profile::MemoryAccount()};
  model::Tensors data;
  for (const TensorSource& source : job_.label_count->sources()) data.push_back(feed.rows(source, first, rows));
  return (*job_.label_count)(data);
}

std::vector<double> LossWeights::label_shares(const Counts& own, double rows, const Counts& all,
                                              double samples) const {
  const std::vector<LabelMean>& means = job_.label_count->means();
  std::vector<double> shares(job_.setup.model.graph.loss->nodes.size(), 1.0);
  for (std::size_t i = 0; i < means.size(); ++i)
    shares[static_cast<std::size_t>(means[i].node)] = own[i] / all[i] / (rows / samples);
  return shares;
}

}  // namespace pp::run
