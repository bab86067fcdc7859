#include "librun/worker/progress.h"

#include <algorithm>
#include <string>

namespace pp::run {

bool Gate::admit(WorkerId worker, Unit unit) {
  Coordinator::Lock lock = coordinator_.lock();
  coordinator_.wait(
      lock, worker, [&] { return unit < end_ || closed_; },
      [&] { return "step " + std::to_string(unit + 1) + " to be started"; });
  if (unit >= end_) return false;
  begun_ = std::max(begun_, unit + 1);
  return true;
}

void Gate::grant(Unit end) {
  const Coordinator::Lock lock = coordinator_.lock();
  if (closed_) return;
  end_ = std::max(end_, end);
  coordinator_.notify_all();
}

Unit Gate::close() {
  const Coordinator::Lock lock = coordinator_.lock();
  closed_ = true;
  end_ = std::min(end_, (begun_ + round_ - 1) / round_ * round_);
  coordinator_.notify_all();
  return end_;
}

bool Ledger::complete(const Entry& entry) const {
  return entry.finished == shape_.participants && static_cast<int>(entry.losses.size()) == shape_.micro_batches;
}

void Ledger::loss(Unit unit, int micro_batch, double value) {
  const Coordinator::Lock lock = coordinator_.lock();
  Entry& entry = units_[unit];
  entry.losses[micro_batch] = value;
  if (complete(entry)) coordinator_.notify_driver();
}

void Ledger::finish(Unit unit, Coordinator::Clock::time_point end) {
  const Coordinator::Lock lock = coordinator_.lock();
  Entry& entry = units_[unit];
  ++entry.finished;
  entry.end = std::max(entry.end, end);
  if (complete(entry)) coordinator_.notify_driver();
}

void Ledger::evaluation(int epoch, int micro_batch, const EvaluationPart& part) {
  const Coordinator::Lock lock = coordinator_.lock();
  auto& parts = evaluations_[epoch];
  parts[micro_batch] = part;
  if (static_cast<int>(parts.size()) == shape_.evaluations) coordinator_.notify_driver();
}

std::optional<UnitResult> Ledger::await_unit(Unit unit, const std::function<bool()>& give_up) {
  Coordinator::Lock lock = coordinator_.lock();
  const auto ready = [&] { return complete(units_[unit]); };
  if (!coordinator_.wait_driver(lock, ready, give_up)) return std::nullopt;
  UnitResult result;
  for (const auto& [micro_batch, value] : units_[unit].losses) result.losses.push_back(value);
  result.end = units_[unit].end;
  units_.erase(unit);
  return result;
}

std::optional<EvaluationPart> Ledger::await_evaluation(int epoch, const std::function<bool()>& give_up) {
  Coordinator::Lock lock = coordinator_.lock();
  const auto ready = [&] { return static_cast<int>(evaluations_[epoch].size()) == shape_.evaluations; };
  if (!coordinator_.wait_driver(lock, ready, give_up)) return std::nullopt;
  EvaluationPart sum;
  for (const auto& [micro_batch, part] : evaluations_[epoch]) {
    sum.loss_sum += part.loss_sum;
    sum.samples += part.samples;
    sum.correct += part.correct;
    sum.predictions += part.predictions;
  }
  evaluations_.erase(epoch);
  return sum;
}

}  // namespace pp::run
