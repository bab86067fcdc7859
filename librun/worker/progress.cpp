#include "librun/worker/progress.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

namespace pp::run {

Commands::Commands(Coordinator& coordinator, Step round, const Readers& readers)
    : monitor_(coordinator),
      round_(round),
      alone_(readers.alone),
      places_(static_cast<std::size_t>(coordinator.workers())) {
  if (alone_) return;
  for (Place& place : places_) place.position = std::numeric_limits<std::size_t>::max();
  for (const WorkerId worker : readers.here) places_[index(worker)].position = 0;
}

void Commands::append(const Command& command) {
  if (tell_) tell_({.kind = Order::Kind::append, .command = command});
  const Monitor::Lock lock = monitor_.lock();
  entries_.emplace_back(command);
  monitor_.notify();
}

void Commands::apply(const Order& order) {
  switch (order.kind) {
    case Order::Kind::append: return append(order.command);
    case Order::Kind::grant: return grant(order.end);
    case Order::Kind::cut: cut(order.evaluation_too ? Cut::evaluation_too : Cut::training); return;
  }
}

void Commands::train(int epoch, Stretch stretch) { append({Command::Kind::train, stretch, epoch}); }

void Commands::evaluate(int epoch, Step count) {
  append({Command::Kind::evaluate, {.first = 0, .end = count}, epoch});
}

void Commands::infer(Step count) { append({Command::Kind::infer, {.first = 0, .end = count}}); }

void Commands::snapshot(Step step, bool last) {
  append({.kind = Command::Kind::snapshot, .step = step, .last = last});
}

void Commands::stop() { append({}); }

void Commands::grant(Step end) {
  if (tell_) tell_({.kind = Order::Kind::grant, .end = end});
  const Monitor::Lock lock = monitor_.lock();
  granted_ = std::max(granted_.load(), end);
  monitor_.notify();
}

// While an entry is closed, who comes to a step without the lock says so in `begun` and then finds it closed:
// either `begun` is read here after that, and the step is within the new end, or the worker looks again with
// the lock.
Step Commands::cut(Cut what) {
  if (tell_) tell_({.kind = Order::Kind::cut, .evaluation_too = what == Cut::evaluation_too});
  const Monitor::Lock lock = monitor_.lock();
  Step trained = trained_;
  bool over = false;  // what follows is beyond the cut
  for (Entry& entry : entries_) {
    const bool trains = entry.command.kind == Command::Kind::train;
    entry.cancelled = entry.cancelled || (over && entry.command.kind != Command::Kind::stop);
    if (entry.cancelled || (!trains && what == Cut::training)) continue;
    Stretch& stretch = entry.command.stretch;
    entry.open = stretch.first;
    const Step end = least_end(entry);
    over = over || (trains && end < stretch.end);
    stretch.end = end;
    entry.open = end;
    if (trains) trained = end;
  }
  monitor_.notify();
  return trained;
}

Step Commands::least_end(const Entry& entry) const {
  const Stretch& stretch = entry.command.stretch;
  const bool trains = entry.command.kind == Command::Kind::train;
  if (!alone_ && !trains) return stretch.end;
  const Step begun = alone_ ? entry.begun.load() : std::clamp(granted_.load(), stretch.first, stretch.end);
  const Step round = trains ? round_ : 1;
  const Step rounds = (begun - stretch.first + round - 1) / round;
  return std::min(stretch.end, stretch.first + rounds * round);
}

Command Commands::next(WorkerId worker) {
  Monitor::Lock lock = monitor_.lock();
  Place& place = places_[index(worker)];
  const auto skip_cancelled = [&] {
    const std::size_t end = dropped_ + entries_.size();
    while (place.position < end && entry(place.position).cancelled) ++place.position;
    return place.position < end;
  };
  monitor_.wait(lock, worker, skip_cancelled, [] { return "the next command"; });
  place.current = &entry(place.position++);
  drop();
  return place.current->command;
}

void Commands::drop() {
  const std::size_t least = std::ranges::min_element(places_, {}, &Place::position)->position;
  for (; dropped_ + 1 < least; ++dropped_) {
    const Entry& left = entries_.front();
    if (left.command.kind == Command::Kind::train && !left.cancelled) trained_ = left.command.stretch.end;
    entries_.pop_front();
  }
}

bool Commands::admit(WorkerId worker, Step step) {
  Entry& entry = *places_[index(worker)].current;
  const bool granted = entry.command.kind != Command::Kind::evaluate;
  const auto begin = [&] {
    Step begun = entry.begun;
    while (begun <= step && !entry.begun.compare_exchange_weak(begun, step + 1)) {
    }
  };
  if (!granted || step < granted_) {
    begin();
    if (step < entry.open) return true;
  }
  Monitor::Lock lock = monitor_.lock();
  const auto cut_off = [&] { return step >= entry.command.stretch.end; };
  monitor_.wait(
      lock, worker, [&] { return !granted || step < granted_ || cut_off(); },
      [&] { return "step " + std::to_string(step + 1) + " to be started"; });
  if (cut_off()) return false;
  begin();
  return true;
}

Step Commands::end_of_stretch(WorkerId worker) {
  const Monitor::Lock lock = monitor_.lock();
  return places_[index(worker)].current->command.stretch.end;
}

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
