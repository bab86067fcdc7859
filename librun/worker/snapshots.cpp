#include "librun/worker/snapshots.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <string>
#include <utility>

namespace pp::run {

namespace {

TrainingState merged(std::vector<Stage::LayerState> layers) {
  std::ranges::sort(layers, {}, &Stage::LayerState::layer);
  TrainingState state;
  const auto append = [](NamedTensors& all, NamedTensors& some) {
    all.insert(all.end(), std::make_move_iterator(some.begin()), std::make_move_iterator(some.end()));
  };
  for (Stage::LayerState& layer : layers) {
    append(state.tensors, layer.tensors);
    append(state.optimizer, layer.optimizer);
  }
  return state;
}

}  // namespace

void Snapshots::begin(WorkerId worker, Step step, bool last) {
  Monitor::Lock lock = monitor_.lock();
  const auto is_it = [&] { return current_ && current_->step == step && current_->last == last; };
  monitor_.wait(
      lock, worker, [&] { return !current_ || is_it(); }, [] { return "the last checkpoint to be written"; });
  if (!current_) current_ = Entry{step, last};
}

void Snapshots::add(std::vector<Stage::LayerState> layers, Seconds pause) {
  const Monitor::Lock lock = monitor_.lock();
  std::ranges::move(layers, std::back_inserter(current_->layers));
  current_->pause = std::max(current_->pause, pause);
  ++current_->parts;
  if (complete()) monitor_.notify();
}

void Snapshots::reached(Step step, const Position& position) {
  const Monitor::Lock lock = monitor_.lock();
  positions_[step] = position;
  monitor_.notify();
}

bool Snapshots::complete() const {
  return current_ && current_->parts == parts_ && positions_.contains(current_->step);
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
  positions_.erase(positions_.begin(), positions_.find(current_->step));
  return Snapshot{positions_.at(current_->step), current_->last, merged(std::exchange(current_->layers, {})),
                  current_->pause};
}

void Snapshots::written() {
  const Monitor::Lock lock = monitor_.lock();
  current_.reset();
  ++written_;
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
    while (const std::optional<Snapshot> snapshot = snapshots_.take()) {
      const Phase phase(run_);
      write_(*snapshot);
      snapshots_.written();
    }
  } catch (const Stopped&) {
  } catch (...) {
    run_.stop(std::current_exception());
  }
}

}  // namespace pp::run
