#include "tests/lab/imitation_gpu/late_streams.h"

#include <utility>

namespace pp::test::gpu {
namespace {

void mark_reached(Mark& mark) {
  mark.reached = true;
  mark.when = std::chrono::steady_clock::now();
}

constexpr Stream kNone = 0;

}  // namespace

void LateStreams::hand_over(Stream stream, std::function<void()> run) {
  if (order_ == Order::at_once) return run();
  const std::lock_guard lock(mutex_);
  queues_[stream].push_back({.run = std::move(run)});
}

std::shared_ptr<Mark> LateStreams::record(Stream stream) {
  const std::lock_guard lock(mutex_);
  auto mark = std::make_shared<Mark>(Mark{.stream = stream});
  if (std::deque<Item>& queue = queues_[stream]; queue.empty()) {
    mark_reached(*mark);
  } else {
    queue.push_back({.reaches = mark});
  }
  return mark;
}

void LateStreams::wait(Stream stream, std::shared_ptr<Mark> mark) {
  const std::lock_guard lock(mutex_);
  if (!mark->reached) queues_[stream].push_back({.waits = std::move(mark)});
}

bool LateStreams::is_reached(const Mark& mark) const {
  const std::lock_guard lock(mutex_);
  return mark.reached;
}

void LateStreams::finish(const Mark& mark) {
  const std::lock_guard lock(mutex_);
  finish_locked(mark);
}

void LateStreams::finish(Stream stream) {
  const std::shared_ptr<Mark> mark = record(stream);
  finish(*mark);
}

void LateStreams::finish_locked(const Mark& mark) {
  if (order_ == Order::last) {
    for (auto& [stream, queue] : queues_) {
      while (stream != mark.stream && !queue.empty() && do_next(queue, mark.stream)) continue;
    }
  }
  reach(mark, kNone);
}

// False: it cannot be reached without the stream `without`.
bool LateStreams::reach(const Mark& mark, Stream without) {
  if (mark.reached) return true;
  if (mark.stream == without) return false;
  std::deque<Item>& queue = queues_[mark.stream];
  while (!mark.reached) {
    if (!do_next(queue, without)) return false;
  }
  return true;
}

// What an item waits for was recorded before it, so no two wait for each other.
bool LateStreams::do_next(std::deque<Item>& queue, Stream without) {
  if (queue.front().waits && !reach(*queue.front().waits, without)) return false;
  const Item item = std::move(queue.front());
  queue.pop_front();
  if (item.run) item.run();
  if (item.reaches) mark_reached(*item.reaches);
  return true;
}

}  // namespace pp::test::gpu
