#include "librun/control/ledger.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

namespace pp::run {

namespace {

constexpr auto kNothingYet = [](LedgerEntry&) -> std::optional<LedgerEntry> { return std::nullopt; };

}  // namespace

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

void Ledger::relay(int updates, std::function<void(LedgerEntry)> there) {
  updates_there_ = static_cast<std::size_t>(updates);
  there_ = std::move(there);
}

template <class Add, class Take>
void Ledger::gather(Add&& add, Take&& take) {
  std::optional<LedgerEntry> whole;
  {
    const std::lock_guard held(mutex_);
    add(leaving_);
    whole = take(leaving_);
  }
  if (whole) there_(*std::move(whole));
}

void Ledger::enter(const LedgerEntry& entry) {
  for (const LedgerEntry::Loss& each : entry.losses) loss(each.step, each.micro_batch, each.value, each.weight);
  for (const LedgerEntry::Update& each : entry.updates) updated(each.step, each.worker, each.end, each.figures);
  for (const LedgerEntry::Evaluation& each : entry.evaluations)
    evaluation(each.epoch, each.micro_batch, each.part);
}

void Ledger::loss(Step step, int micro_batch, double value, double weight) {
  if (there_) {
    return gather(
        [&](LedgerEntry& to) {
          to.losses.push_back({step, micro_batch, value, weight});
        },
        kNothingYet);
  }
  slot(step).losses[static_cast<std::size_t>(micro_batch)] = value;
  slot(step).weights[static_cast<std::size_t>(micro_batch)] = weight;
}

void Ledger::updated(Step step, WorkerId worker, Coordinator::Clock::time_point end,
                     const StepFigures& figures) {
  if (there_) {
    return gather(
        [&](LedgerEntry& to) {
          to.updates.push_back({step, worker, end, figures});
        },
        [&](LedgerEntry& all) -> std::optional<LedgerEntry> {
          if (all.updates.size() < updates_there_) return std::nullopt;
          return std::exchange(all, {});
        });
  }
  Part& part = slot(step).workers[index(worker)];
  part.end = std::max(part.end, end);
  part.figures.join(figures);
  hand_in(step);
}

void Ledger::evaluation(int epoch, int micro_batch, const EvaluationPart& part) {
  if (there_) {
    return gather([&](LedgerEntry& to) { to.evaluations.push_back({epoch, micro_batch, part}); }, kNothingYet);
  }
  const Monitor::Lock lock = monitor_.lock();
  auto& parts = evaluations_[epoch];
  parts[micro_batch] = part;
  if (static_cast<int>(parts.size()) == shape_.evaluations) monitor_.notify();
}

// Updates stay: others of their step may be on their way, and go with them.
void Ledger::evaluated() {
  if (!there_) return;
  gather([](LedgerEntry&) {},
         [](LedgerEntry& all) -> std::optional<LedgerEntry> {
           if (all.evaluations.empty()) return std::nullopt;
           LedgerEntry evaluations;
           evaluations.evaluations.swap(all.evaluations);
           return evaluations;
         });
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

Passes::Passes(Coordinator& coordinator, int stages) : monitor_(coordinator), stages_(stages) {}

void Passes::hand_in(Step pass, Coordinator::Clock::time_point begin, Coordinator::Clock::time_point end) {
  const Monitor::Lock lock = monitor_.lock();
  const auto open = open_.try_emplace(pass, Open{{pass, begin, end}, stages_}).first;
  PassTime& time = open->second.time;
  time.begin = std::min(time.begin, begin);
  time.end = std::max(time.end, end);
  if (--open->second.missing > 0) return;
  complete_.push_back(time);
  open_.erase(open);
  monitor_.notify();
}

std::optional<std::vector<PassTime>> Passes::await(const std::function<bool()>& give_up) {
  Monitor::Lock lock = monitor_.lock();
  if (!monitor_.wait_driver(
          lock, [&] { return !complete_.empty(); }, give_up))
    return std::nullopt;
  return std::exchange(complete_, {});
}

}  // namespace pp::run
