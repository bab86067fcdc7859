// Things made in advance by a thread of their own, in a fixed order, a few of them at a time. Free of Torch.
#pragma once

#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "librun/threads/coordinator.h"
#include "librun/threads/threads.h"

namespace pp::run {

/// Belongs to one worker, which takes what the thread makes. The thread ends with the object, or when the run
/// is stopped, but never within make().
template <class Item>
class ReadAhead {
 public:
  /// The next one; nothing at the end of the sequence. What it throws, take() throws in its place.
  using Make = std::function<std::optional<Item>()>;

  /// At most `ahead` wait to be taken. `enter`: the thread's first call. `run` must outlive it. Throws
  /// pp::Error (run) when no thread can be started.
  ReadAhead(Coordinator& run, WorkerId worker, std::size_t ahead, std::function<void()> enter)
      : monitor_(run), worker_(worker), ahead_(ahead) {
    thread_.add([this, first = std::move(enter)] { live(first); });
  }
  ~ReadAhead() {
    {
      const Monitor::Lock lock = monitor_.lock();
      closed_ = true;
    }
    monitor_.notify();
    thread_.join();
  }
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  /// A new sequence; what is left of the last one is dropped. `make` may be called until the next begin() has
  /// returned, and calls of the last one are over. Throws as Monitor::wait does.
  void begin(Make make) {
    Monitor::Lock lock = monitor_.lock();
    over_ = true;
    monitor_.wait(
        lock, worker_, [&] { return !making_; }, [] { return std::string("the end of reading ahead"); });
    ready_.clear();
    make_ = std::move(make);
    over_ = false;
    lock.unlock();
    monitor_.notify();
  }

  /// Until take() will not block. `what`: for the report of a stall. Throws as Monitor::wait does.
  template <class What>
  void await(What&& what) {
    Monitor::Lock lock = monitor_.lock();
    monitor_.wait(
        lock, worker_, [&] { return !ready_.empty(); }, what);
  }
  /// After await(). Throws what make() threw.
  Item take() {
    Monitor::Lock lock = monitor_.lock();
    Slot slot = std::move(ready_.front());
    ready_.pop_front();
    lock.unlock();
    monitor_.notify();
    if (slot.error) std::rethrow_exception(slot.error);
    return std::move(*slot.item);
  }

 private:
  struct Slot {
    std::optional<Item> item;
    std::exception_ptr error;
  };

  Slot make_one() const {
    try {
      return {make_(), nullptr};
    } catch (...) {
      return {std::nullopt, std::current_exception()};
    }
  }

  void live(const std::function<void()>& enter) {
    std::exception_ptr failed;
    try {
      enter();
    } catch (...) {
      failed = std::current_exception();
    }
    Monitor::Lock lock = monitor_.lock();
    const auto wanted = [&] { return closed_ || (!over_ && ready_.size() < ahead_); };
    while (monitor_.wait_helper(lock, wanted) && !closed_) {
      making_ = true;
      lock.unlock();
      Slot slot = failed ? Slot{std::nullopt, failed} : make_one();
      lock.lock();
      making_ = false;
      if (!slot.item) over_ = true;
      if (slot.item || slot.error) ready_.push_back(std::move(slot));
      monitor_.notify();
    }
  }

  Monitor monitor_;
  WorkerId worker_;
  std::size_t ahead_;
  Make make_;
  std::deque<Slot> ready_;
  bool over_ = true;  ///< nothing more is to be made
  bool making_ = false;
  bool closed_ = false;
  Threads thread_;
};

}  // namespace pp::run
