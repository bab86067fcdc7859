#include "librun/worker/data_feed.h"

#include <algorithm>
#include <utility>

#include "libprofile/device/compute_device.h"
#include "libprofile/device/hand_over.h"

namespace pp::run {

namespace {

// Operations whose rows wait for them. A pipeline's first stage begins with several forwards in a row.
constexpr std::size_t kBatchesAhead = 4;

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

}  // namespace pp::run
