#include "librun/control/snapshots.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <string>
#include <utility>

namespace pp::run {

TrainingState merged(const std::vector<Stage::LayerState>& layers) {
  TrainingState state;
  for (const Stage::LayerState& layer : layers) {
    std::ranges::copy(layer.tensors, std::back_inserter(state.tensors));
    std::ranges::copy(layer.optimizer, std::back_inserter(state.optimizer));
  }
  return state;
}

void Snapshots::begin(WorkerId worker, Step step, bool last) {
  Monitor::Lock lock = monitor_.lock();
  const Key key{step, last};
  monitor_.wait(
      lock, worker, [&] { return entries_.empty() || entries_.begin()->first >= key; },
      [] { return "the last checkpoint to be written"; });
  if (!begun_) begun_ = Coordinator::Clock::now();
}

bool Snapshots::made_between(Coordinator::Clock::time_point from, Coordinator::Clock::time_point to) {
  const Monitor::Lock lock = monitor_.lock();
  return (begun_ && *begun_ < to) || (last_ && last_->begin < to && from < last_->end);
}

void Snapshots::add(Step step, bool last, std::vector<Stage::LayerState> layers, Seconds pause) {
  const Monitor::Lock lock = monitor_.lock();
  Entry& entry = entries_[{step, last}];
  std::ranges::move(layers, std::back_inserter(entry.layers));
  entry.pause = std::max(entry.pause, pause);
  ++entry.parts;
  if (complete()) monitor_.notify();
}

void Snapshots::reached(Step step, const Position& position) {
  const Monitor::Lock lock = monitor_.lock();
  positions_[step] = position;
  monitor_.notify();
}

bool Snapshots::complete() const {
  return !entries_.empty() && entries_.begin()->second.parts == parts_ &&
         positions_.contains(entries_.begin()->first.first);
}

std::optional<Snapshot> Snapshots::take() {
  Monitor::Lock lock = monitor_.lock();
  const auto closed = [&] {
    const Monitor::Lock held = monitor_.lock();
    return closed_;
  };
  if (!monitor_.wait_driver(
          lock, [&] { return complete(); }, closed))
    return std::nullopt;
  auto& [key, entry] = *entries_.begin();
  const auto [step, last] = key;
  positions_.erase(positions_.begin(), positions_.find(step));
  Snapshot snapshot{step, positions_.at(step), last, std::exchange(entry.layers, {}), entry.pause};
  std::ranges::sort(snapshot.layers, {},
                    [](const Stage::LayerState& s) { return std::pair(s.layer, s.owner); });
  return snapshot;
}

void Snapshots::written() {
  const Monitor::Lock lock = monitor_.lock();
  entries_.erase(entries_.begin());
  ++written_;
  last_ = {*std::exchange(begun_, std::nullopt), Coordinator::Clock::now()};
  monitor_.notify();
}

void Snapshots::await_written(int count) {
  Monitor::Lock lock = monitor_.lock();
  monitor_.wait_driver(
      lock, [&] { return written_ >= count; }, [] { return false; });
}

void Snapshots::close() {
  const Monitor::Lock lock = monitor_.lock();
  closed_ = true;
  monitor_.notify();
}

SnapshotWriter::SnapshotWriter(Coordinator& run, Snapshots& snapshots, Write write)
    : run_(run), snapshots_(snapshots), write_(std::move(write)), thread_(Threads::system()) {
  thread_.add([this] { serve(); });
}

SnapshotWriter::~SnapshotWriter() {
  snapshots_.close();
  thread_.join();
}

void SnapshotWriter::serve() noexcept {
  try {
    while (std::optional<Snapshot> snapshot = snapshots_.take()) {
      write_(std::move(*snapshot));
      snapshots_.written();
    }
  } catch (const Stopped&) {
  } catch (...) {
    run_.stop(std::current_exception());
  }
}

}  // namespace pp::run
