#include "librun/control/ledger.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

namespace pp::run {

Ledger::Ledger(Coordinator& coordinator, LedgerShape shape)
    : monitor_(coordinator), shape_(shape), slots_(static_cast<std::size_t>(shape.steps)) {
  for (Slot& slot : slots_) {
    slot.missing = shape.updates;
    slot.losses.resize(static_cast<std::size_t>(shape.micro_batches));
    slot.weights.resize(slot.losses.size());
    slot.workers.resize(static_cast<std::size_t>(coordinator.workers()));
  }
}

// The driver writes down what it awaits before it looks what is missing: either it sees this update, or it is
// seen here.
void Ledger::hand_in(Step step) {
  if (slot(step).missing.fetch_sub(1) > 1 || step < awaited_) return;
  monitor_.lock().unlock();
  monitor_.notify();
}

void Ledger::enter(const LedgerEntry& entry) {
  switch (entry.kind) {
    case LedgerEntry::Kind::loss: return loss(entry.step, entry.micro_batch, entry.loss, entry.weight);
    case LedgerEntry::Kind::update: return updated(entry.step, entry.worker, entry.end, entry.figures);
    case LedgerEntry::Kind::evaluation:
      return evaluation(static_cast<int>(entry.step), entry.micro_batch, entry.part);
  }
}

void Ledger::loss(Step step, int micro_batch, double value, double weight) {
  if (there_) {
    return there_({.kind = LedgerEntry::Kind::loss,
                   .step = step,
                   .micro_batch = micro_batch,
                   .loss = value,
                   .weight = weight});
  }
  slot(step).losses[static_cast<std::size_t>(micro_batch)] = value;
  slot(step).weights[static_cast<std::size_t>(micro_batch)] = weight;
}

void Ledger::updated(Step step, WorkerId worker, Coordinator::Clock::time_point end,
                     const StepFigures& figures) {
  if (there_)
    return there_(
        {.kind = LedgerEntry::Kind::update, .step = step, .worker = worker, .end = end, .figures = figures});
  Part& part = slot(step).workers[index(worker)];
  part.end = std::max(part.end, end);
  part.figures.join(figures);
  hand_in(step);
}

void Ledger::evaluation(int epoch, int micro_batch, const EvaluationPart& part) {
  if (there_)
    return there_(
        {.kind = LedgerEntry::Kind::evaluation, .step = epoch, .micro_batch = micro_batch, .part = part});
  const Monitor::Lock lock = monitor_.lock();
  auto& parts = evaluations_[epoch];
  parts[micro_batch] = part;
  if (static_cast<int>(parts.size()) == shape_.evaluations) monitor_.notify();
}

std::optional<StepResult> Ledger::await_step(Step step, Step last, const std::function<bool()>& give_up) {
  awaited_ = last;
  Monitor::Lock lock = monitor_.lock();
  Slot& slot = this->slot(step);
  if (!monitor_.wait_driver(
          lock, [&] { return slot.missing == 0; }, give_up))
    return std::nullopt;
  StepResult result{.losses = slot.losses, .weights = slot.weights, .end = {}, .workers = {}};
  for (Part& part : slot.workers) {
    result.end = std::max(result.end, part.end);
    result.workers.push_back(part.figures);
    part = {};
  }
  slot.missing = shape_.updates;
  return result;
}

std::optional<EvaluationPart> Ledger::await_evaluation(int epoch, const std::function<bool()>& give_up) {
  Monitor::Lock lock = monitor_.lock();
  const auto ready = [&] { return static_cast<int>(evaluations_[epoch].size()) == shape_.evaluations; };
  if (!monitor_.wait_driver(lock, ready, give_up)) return std::nullopt;
  EvaluationPart sum;
  for (const auto& [micro_batch, part] : evaluations_[epoch]) {
    sum.loss_sum += part.loss_sum;
    sum.weight += part.weight;
    sum.correct += part.correct;
    sum.predictions += part.predictions;
  }
  evaluations_.erase(epoch);
  return sum;
}

}  // namespace pp::run
