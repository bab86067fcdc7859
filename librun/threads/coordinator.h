// What the workers of one process share to wait for each other: who runs what, a stop that wakes everybody, and
// monitors, each with a lock of its own. Message queues, barriers and the commands build on it; a watchdog
// (watchdog.h) reads it. Free of Torch, so that TSan sees all of it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "libplan/schedule/program.h"
#include "libprofile/core/index.h"
#include "libprofile/core/units.h"

namespace pp::run {

/// Leaves every wait of a worker whose run was stopped by somebody else's error. Not an error of its own.
struct Stopped {};

class Monitor;

/// What somebody waits for: refers to a call that puts it into words, only when somebody asks.
class Reason {
 public:
  template <class What>
  explicit Reason(const What& what)
      : what_(&what), words_([](const void* call) { return (*static_cast<const What*>(call))(); }) {}
  std::string words() const { return words_(what_); }

 private:
  const void* what_;
  std::string (*words_)(const void*);
};

class Coordinator {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Coordinator(int workers);

  int workers() const { return static_cast<int>(slots_.size()); }

  /// `worker` is about to run `op`; nothing when it is between steps. Counts as progress and takes no lock.
  /// Throws Stopped after stop(), so that a worker that never waits ends with the others.
  void announce(WorkerId worker, const std::optional<plan::Op>& op);

  /// Something that the worker has begun is done: progress too.
  void advanced(WorkerId worker);

  /// Blocks `worker` until `ready()`, which is asked again and again, as a message-passing library wants it: at
  /// first while others may run, then with short sleeps. `what()` as in Monitor::wait. Throws Stopped after
  /// stop().
  template <class Ready, class What>
  void poll(WorkerId worker, Ready&& ready, What&& what) {
    if (!stopped() && ready()) return;
    const auto words = [&] { return std::string(what()); };
    const Reason why(words);
    waits(worker, &why);
    for (int asked = 0; !stopped() && !ready(); ++asked) pause(asked);
    waits(worker, nullptr);
    if (stopped()) throw Stopped{};
  }
  /// Between two looks at something that comes from outside; the longer it has been waited for, the longer.
  static void pause(int asked);

  /// What another process says of its workers: progress there counts here, too. From one thread.
  struct Elsewhere {
    std::uint64_t progress = 0;
    bool in_phase = false;
  };
  Elsewhere here() const;
  void tell_elsewhere(const Elsewhere& all) {
    progress_elsewhere_ = all.progress;
    phase_elsewhere_ = all.in_phase;
  }
  void tell_state(WorkerId worker, std::string state);

  /// Ends the run: everybody who waits or will wait throws Stopped. Only the first error is kept.
  void stop(std::exception_ptr error);
  bool stopped() const { return stopped_.load(); }
  /// Null while nothing failed.
  std::exception_ptr error();

  /// Operations announced and done, and phases ended so far.
  std::uint64_t progress() const;
  /// Whether somebody is busy with what is no operation.
  bool in_phase() const { return phases_.load() > 0 || phase_elsewhere_.load(); }
  /// `worker 1: F1.2, running`
  std::string state_of(WorkerId worker);

 private:
  friend class Monitor;
  friend class Phase;
  // A line of the cache each: workers announce without touching what others write.
  struct alignas(64) Slot {
    std::atomic<std::uint64_t> op;
    std::atomic<std::uint64_t> progress = 0;
    std::mutex mutex;                     ///< of what follows
    const Reason* waiting_for = nullptr;  ///< null: running
    std::string state_elsewhere;          ///< of a worker of another process
  };
  void waits(WorkerId worker, const Reason* why);

  std::vector<std::unique_ptr<Slot>> slots_;
  std::atomic<bool> stopped_ = false;
  std::atomic<int> phases_ = 0;
  std::atomic<std::uint64_t> phases_ended_ = 0;
  std::atomic<std::uint64_t> progress_elsewhere_ = 0;
  std::atomic<bool> phase_elsewhere_ = false;
  std::mutex mutex_;  ///< of what follows
  std::exception_ptr error_;
  std::vector<Monitor*> monitors_;
};

/// A lock, and those who wait for what it guards. Everything that workers meet at has one of its own.
class Monitor {
 public:
  using Lock = std::unique_lock<std::mutex>;

  /// `run` must outlive it.
  explicit Monitor(Coordinator& run);
  ~Monitor();
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  Lock lock() { return Lock(mutex_); }

  /// Blocks `worker` until `ready()`, which is called with the lock held and throws nothing. `what()` says in
  /// words what is waited for (`the activation of ...`); it is asked by other threads, while the wait blocks
  /// and they want to know. Throws Stopped after stop().
  template <class Ready, class What>
  void wait(Lock& lock, WorkerId worker, Ready&& ready, What&& what) {
    if (!run_.stopped() && !ready()) {
      const auto words = [&] { return std::string(what()); };
      const Reason why(words);
      run_.waits(worker, &why);
      const auto over = [&] { return run_.stopped() || ready(); };
      for (Awake awake; !over() && awake.lasts();) look_out(lock, awake);
      changed_.wait(lock, over);
      run_.waits(worker, nullptr);
    }
    if (run_.stopped()) throw Stopped{};
  }

  /// The calling thread's wait. `give_up` is asked without the lock, at once and then about every 50 ms: true
  /// ends the wait, which returns false. Throws Stopped after stop().
  template <class Ready, class GiveUp>
  bool wait_driver(Lock& lock, Ready&& ready, GiveUp&& give_up) {
    while (true) {
      lock.unlock();
      const bool enough = give_up();
      lock.lock();
      if (run_.stopped()) throw Stopped{};
      if (ready()) return true;
      if (enough) return false;
      changed_.wait_for(lock, std::chrono::milliseconds(50));
    }
  }

  /// A thread's that is no worker. False after stop().
  template <class Ready>
  bool wait_helper(Lock& lock, Ready&& ready) {
    changed_.wait(lock, [&] { return run_.stopped() || ready(); });
    return !run_.stopped();
  }

  /// Makes who waits look again, after something has changed under the lock. Better called without it: who
  /// wakes up takes it at once.
  void notify() {
    changes_.fetch_add(1, std::memory_order_release);
    changed_.notify_all();
  }

 private:
  /// How long a worker looks before it sleeps. To wake a sleeping core takes the waking worker and the sleeper
  /// tens of microseconds each, of passes of 100 us.
  class Awake {
   public:
    bool lasts() const { return Coordinator::Clock::now() < end_; }

   private:
    Coordinator::Clock::time_point end_ = Coordinator::Clock::now() + std::chrono::milliseconds(1);
  };
  /// Without the lock, until somebody notifies; others may run on this core meanwhile.
  void look_out(Lock& lock, const Awake& awake) {
    const std::uint32_t seen = changes_.load(std::memory_order_acquire);
    lock.unlock();
    while (changes_.load(std::memory_order_acquire) == seen && awake.lasts()) std::this_thread::yield();
    lock.lock();
  }

  Coordinator& run_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<std::uint32_t> changes_ = 0;  ///< notified
};

/// While one exists, waiting is no stall: somebody is busy with what is no operation, a worker that makes its
/// weights or an observer that shows a line.
class Phase {
 public:
  explicit Phase(Coordinator& coordinator);
  ~Phase();
  Phase(const Phase&) = delete;
  Phase& operator=(const Phase&) = delete;

 private:
  Coordinator& coordinator_;
};

/// All `members` meet, any number of times. The last one to arrive opens it.
class Barrier {
 public:
  Barrier(Coordinator& coordinator, std::size_t members);
  /// Throws as Monitor::wait does.
  void arrive_and_wait(WorkerId worker, const char* what);

 private:
  Monitor monitor_;
  std::size_t members_;
  std::size_t arrived_ = 0;
  long generation_ = 0;
};

}  // namespace pp::run
