#include "librun/report/slow_devices.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <utility>

#include "libprofile/core/index.h"
#include "librun/report/build.h"

namespace pp::run {

namespace {

bool replicas_train_apart(plan::WeightPolicy policy) {
  using plan::WeightPolicy;
  constexpr std::array kApart{WeightPolicy::server, WeightPolicy::downpour, WeightPolicy::ssp,
                              WeightPolicy::hogwild};
  return std::ranges::count(kApart, policy) > 0;
}

/// Which of its stages a worker runs.
std::vector<std::size_t> stages_of(const plan::Plan& plan, WorkerId worker) {
  std::vector<std::size_t> stages;
  for (std::size_t s = 0; s < plan.stages.size(); ++s)
    if (std::ranges::count(plan.stages[s].workers, worker) > 0) stages.push_back(s);
  return stages;
}

}  // namespace

std::string slow_device_line(const SlowDevice& slow, const plan::Plan& plan) {
  const Device& device = plan::device_of(plan, slow.worker);
  std::array<char, 32> factor{};
  std::snprintf(factor.data(), factor.size(), "%.3g", slow.factor);
  std::string text = "device " + pp::to_text(device);
  if (!device.node.empty()) text += " on " + device.node;
  text += " (worker " + std::to_string(number(slow.worker)) + (slow.last_step ? ") took " : ") takes ") +
          factor.data() + " times as long as promised ";
  if (!slow.last_step) return text + "since step " + std::to_string(slow.first_step);
  return text + "from step " + std::to_string(slow.first_step) + " to " + std::to_string(*slow.last_step);
}

SlowDevices::SlowDevices(const plan::Plan& plan) {
  if (plan.predicted.workers.size() != plan.workers.size()) return;
  if (replicas_train_apart(plan.schedule.weight_policy)) return;
  std::map<std::vector<std::size_t>, int> rows;
  std::map<DeviceId, int> columns;
  for (const plan::Worker& worker : plan.workers) {
    const Seconds promised = plan.predicted.workers[index(worker.id)].busy;
    workers_.push_back({.promised = promised});
    if (promised <= Seconds()) continue;
    const int row = rows.emplace(stages_of(plan, worker.id), std::ssize(rows)).first->second;
    const auto [column, added] = columns.emplace(worker.device, std::ssize(columns));
    if (added) table_.devices.push_back(column->second);
    table_.cells.push_back({row, column->second});
    ids_.push_back(worker.id);
  }
  table_.rows = static_cast<int>(rows.size());
}

SlowDevices::Changes SlowDevices::add(std::int64_t step, Seconds time, double mini_batches,
                                      std::span<const StepFigures> workers) {
  if (ids_.empty() || ++steps_ <= kWarmUpSteps) return {};
  if (first_step_ == 0) first_step_ = step;
  for (const WorkerId id : ids_) workers_[index(id)].busy += workers[index(id)].busy;
  time_ += time;
  mini_batches_ += mini_batches;
  if (time_ < kSample) return {};
  Changes changes = close();
  first_step_ = 0;
  time_ = {};
  mini_batches_ = 0;
  for (Watched& worker : workers_) worker.busy = {};
  return changes;
}

SlowDevices::Changes SlowDevices::close() {
  constexpr double kLeast = 1e-6;  // a step in which a worker did nothing has no logarithm
  plan::TwoWayTable table = table_;
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    const Watched& worker = workers_[index(ids_[i])];
    table.cells[i].ratio = std::max(kLeast, worker.busy / (mini_batches_ * worker.promised));
  }
  const std::vector<double> devices = plan::two_way_factors(table).columns;
  Changes changes;
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    Sample sample{.first_step = first_step_, .factor = devices[at(table.cells[i].column)]};
    const double against_promise = std::min(sample.factor, table.cells[i].ratio);
    if (against_promise > plan::kUsualError) sample.state = State::slow;
    if (1 / std::max(sample.factor, table.cells[i].ratio) > plan::kUsualError) sample.state = State::fast;
    Watched& worker = workers_[index(ids_[i])];
    if (worker.last.size() == kWindow) worker.last.erase(worker.last.begin());
    worker.last.push_back(sample);
    note(worker, ids_[i], changes);
  }
  return changes;
}

void SlowDevices::note(Watched& worker, WorkerId id, Changes& changes) {
  const auto count = [&](State state) {
    return static_cast<std::size_t>(std::ranges::count(worker.last, state, &Sample::state));
  };
  const State before = worker.state;
  if (before != State::as_promised && worker.last.size() - count(before) >= kSlow)
    worker.state = State::as_promised;
  for (const State state : {State::slow, State::fast})
    if (count(state) >= kSlow) worker.state = state;
  changes.any = changes.any || worker.state != before;

  const auto find_first = [&](bool slow) {
    return std::ranges::find_if(worker.last,
                                [&](const Sample& one) { return (one.state == State::slow) == slow; })
        ->first_step;
  };
  if (worker.state == State::slow) {
    if (before != State::slow) worker.slow = SlowDevice{.worker = id, .first_step = find_first(true)};
    if (worker.last.back().state == State::slow) worker.slow->factor = middle_factor(worker, State::slow);
    if (before != State::slow) changes.slow.push_back(*worker.slow);
  } else if (worker.slow) {
    worker.slow->last_step = std::max(worker.slow->first_step, find_first(false) - 1);
    keep_last(past_, *worker.slow, kMost);
    changes.slow.push_back(*std::exchange(worker.slow, std::nullopt));
  }
}

std::vector<SlowDevice> SlowDevices::found() const {
  std::vector<SlowDevice> found = past_;
  for (const Watched& worker : workers_)
    if (worker.slow) found.push_back(*worker.slow);
  std::ranges::stable_sort(found, {}, &SlowDevice::first_step);
  return found;
}

double SlowDevices::middle_factor(const Watched& worker, std::optional<State> of) {
  std::vector<double> factors;
  for (const Sample& one : worker.last)
    if (!of || one.state == *of) factors.push_back(one.factor);
  if (factors.empty()) return 1;
  const auto half = factors.begin() + static_cast<std::ptrdiff_t>(factors.size() / 2);
  std::ranges::nth_element(factors, half);
  return *half;
}

std::vector<double> SlowDevices::factors() const {
  std::vector<double> factors;
  for (const Watched& worker : workers_) factors.push_back(middle_factor(worker));
  return factors;
}

}  // namespace pp::run
