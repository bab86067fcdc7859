#include "librun/worker/progress.h"

#include <algorithm>
#include <string>
#include <utility>

namespace pp::run {

Commands::Commands(Coordinator& coordinator, Step round)
    : monitor_(coordinator), round_(round), position_(static_cast<std::size_t>(coordinator.workers()), 0) {}

void Commands::append(Command command) {
  const Monitor::Lock lock = monitor_.lock();
  entries_.push_back({command, command.stretch.first});
  monitor_.notify();
}

void Commands::train(int epoch, Stretch stretch) { append({Command::Kind::train, stretch, epoch}); }

void Commands::evaluate(int epoch, Step count) {
  append({Command::Kind::evaluate, {.first = 0, .end = count}, epoch});
}

void Commands::snapshot(Step step, bool last) {
  append({.kind = Command::Kind::snapshot, .step = step, .last = last});
}

void Commands::stop() { append({}); }

void Commands::grant(Step end) {
  const Monitor::Lock lock = monitor_.lock();
  granted_ = std::max(granted_, end);
  monitor_.notify();
}

Step Commands::cut(Cut what) {
  const Monitor::Lock lock = monitor_.lock();
  Step trained = 0;
  bool over = false;  // what follows is beyond the cut
  for (Entry& entry : entries_) {
    const bool trains = entry.command.kind == Command::Kind::train;
    entry.cancelled = entry.cancelled || (over && entry.command.kind != Command::Kind::stop);
    if (entry.cancelled || (!trains && what == Cut::training)) continue;
    Stretch& stretch = entry.command.stretch;
    const Step round = trains ? round_ : 1;
    const Step rounds = (entry.begun - stretch.first + round - 1) / round;
    const Step end = std::min(stretch.end, stretch.first + rounds * round);
    over = over || (trains && end < stretch.end);
    stretch.end = end;
    if (trains) trained = end;
  }
  monitor_.notify();
  return trained;
}

Command Commands::next(WorkerId worker) {
  Monitor::Lock lock = monitor_.lock();
  std::size_t& position = position_[index(worker)];
  const auto skip_cancelled = [&] {
    while (position < entries_.size() && entries_[position].cancelled) ++position;
    return position < entries_.size();
  };
  monitor_.wait(lock, worker, skip_cancelled, [] { return "the next command"; });
  return entries_[position++].command;
}

bool Commands::admit(WorkerId worker, Step step) {
  Monitor::Lock lock = monitor_.lock();
  const std::size_t current = position_[index(worker)] - 1;
  const bool trains = entries_[current].command.kind == Command::Kind::train;
  const auto cut_off = [&] { return step >= entries_[current].command.stretch.end; };
  monitor_.wait(
      lock, worker, [&] { return !trains || step < granted_ || cut_off(); },
      [&] { return "step " + std::to_string(step + 1) + " to be started"; });
  if (cut_off()) return false;
  entries_[current].begun = std::max(entries_[current].begun, step + 1);
  return true;
}

Step Commands::end_of_stretch(WorkerId worker) {
  const Monitor::Lock lock = monitor_.lock();
  return entries_[position_[index(worker)] - 1].command.stretch.end;
}

bool Ledger::complete(const Entry& entry) const {
  return entry.updates == shape_.updates && static_cast<int>(entry.losses.size()) == shape_.micro_batches;
}

void Ledger::loss(Step step, int micro_batch, double value) {
  const Monitor::Lock lock = monitor_.lock();
  Entry& entry = steps_[step];
  entry.losses[micro_batch] = value;
  if (complete(entry)) monitor_.notify();
}

void Ledger::updated(Step step, WorkerId worker, Coordinator::Clock::time_point end,
                     const StepFigures& figures) {
  const Monitor::Lock lock = monitor_.lock();
  Entry& entry = steps_[step];
  ++entry.updates;
  entry.workers.resize(workers_);
  entry.workers[index(worker)].join(figures);
  entry.end = std::max(entry.end, end);
  if (complete(entry)) monitor_.notify();
}

void Ledger::evaluation(int epoch, int micro_batch, const EvaluationPart& part) {
  const Monitor::Lock lock = monitor_.lock();
  auto& parts = evaluations_[epoch];
  parts[micro_batch] = part;
  if (static_cast<int>(parts.size()) == shape_.evaluations) monitor_.notify();
}

std::optional<StepResult> Ledger::await_step(Step step, const std::function<bool()>& give_up) {
  Monitor::Lock lock = monitor_.lock();
  const auto ready = [&] { return complete(steps_[step]); };
  if (!monitor_.wait_driver(lock, ready, give_up)) return std::nullopt;
  StepResult result;
  for (const auto& [micro_batch, value] : steps_[step].losses) result.losses.push_back(value);
  result.end = steps_[step].end;
  result.workers = std::move(steps_[step].workers);
  steps_.erase(step);
  return result;
}

std::optional<EvaluationPart> Ledger::await_evaluation(int epoch, const std::function<bool()>& give_up) {
  Monitor::Lock lock = monitor_.lock();
  const auto ready = [&] { return static_cast<int>(evaluations_[epoch].size()) == shape_.evaluations; };
  if (!monitor_.wait_driver(lock, ready, give_up)) return std::nullopt;
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
