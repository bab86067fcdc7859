// What one worker has sent and one other has not taken yet: bounded, with a lock that only these two take. Free
// of Torch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "librun/threads/coordinator.h"

namespace pp::run {

/// Messages are found by number; taking them in the order in which they were put is fastest. Allocates nothing
/// once it is made: messages are used again.
template <class Message>
class MessageQueue {
 public:
  /// At most `window` messages wait. The coordinator must outlive it.
  MessageQueue(Coordinator& run, WorkerId from, WorkerId to, int window)
      : monitor_(run), from_(from), to_(to), slots_(static_cast<std::size_t>(window)) {}

  /// Blocks `from` while the queue is full; then fill(message) sets one that is new or was taken. `what()`: for
  /// the report of a stall. Throws as Monitor::wait does.
  template <class Fill, class What>
  void put(std::int64_t number, Fill&& fill, What&& what) {
    Monitor::Lock lock = monitor_.lock();
    monitor_.wait(
        lock, from_, [&] { return unread_ < slots_.size(); }, what);
    Slot& slot = slots_[unread_];
    slot.number = number;
    fill(slot.message);
    ++unread_;
    lock.unlock();
    monitor_.notify();
  }

  /// Blocks `to` until the message is there; returns use(message).
  template <class Use, class What>
  auto take(std::int64_t number, Use&& use, What&& what) {
    Monitor::Lock lock = monitor_.lock();
    auto found = slots_.end();
    const auto arrived = [&] {
      const auto end = slots_.begin() + static_cast<std::ptrdiff_t>(unread_);
      found = std::find_if(slots_.begin(), end, [&](const Slot& slot) { return slot.number == number; });
      return found != end;
    };
    monitor_.wait(lock, to_, arrived, what);
    auto taken = use(found->message);
    std::rotate(found, found + 1, slots_.begin() + static_cast<std::ptrdiff_t>(unread_));
    const bool was_full = unread_-- == slots_.size();
    lock.unlock();
    if (was_full) monitor_.notify();
    return taken;
  }

 private:
  struct Slot {
    std::int64_t number = 0;
    Message message;
  };

  Monitor monitor_;
  WorkerId from_;
  WorkerId to_;
  std::vector<Slot> slots_;  ///< first the unread ones, in the order in which they were put
  std::size_t unread_ = 0;
};

}  // namespace pp::run
