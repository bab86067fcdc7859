#include "librun/control/commands.h"

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

void Commands::train(int epoch, StepRange range) { append({Command::Kind::train, range, epoch}); }

void Commands::evaluate(int number, Step count) {
  append({Command::Kind::evaluate, {.first = 0, .end = count}, number});
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
    StepRange& range = entry.command.range;
    entry.open = range.first;
    const Step end = least_end(entry);
    over = over || (trains && end < range.end);
    range.end = end;
    entry.open = end;
    if (trains) trained = end;
  }
  monitor_.notify();
  return trained;
}

Step Commands::least_end(const Entry& entry) const {
  const StepRange& range = entry.command.range;
  const bool trains = entry.command.kind == Command::Kind::train;
  if (!alone_ && !trains) return range.end;
  const Step begun = alone_ ? entry.begun.load() : std::clamp(granted_.load(), range.first, range.end);
  const Step round = trains ? round_ : 1;
  const Step rounds = (begun - range.first + round - 1) / round;
  return std::min(range.end, range.first + rounds * round);
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
    if (left.command.kind == Command::Kind::train && !left.cancelled) trained_ = left.command.range.end;
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
  const auto cut_off = [&] { return step >= entry.command.range.end; };
  monitor_.wait(
      lock, worker, [&] { return !granted || step < granted_ || cut_off(); },
      [&] { return "step " + std::to_string(step + 1) + " to be started"; });
  if (cut_off()) return false;
  begin();
  return true;
}

Step Commands::end_of_range(WorkerId worker) {
  const Monitor::Lock lock = monitor_.lock();
  return places_[index(worker)].current->command.range.end;
}

}  // namespace pp::run
