// How the workers of one process wait for each other: one lock for all hand-over state, one condition per
// worker, a stop that wakes everybody, and a watch that tells a slow neighbour from a stall. Mailboxes,
// barriers and the gate build on it. Free of Torch, so that TSan sees all of it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "libplan/schedule/program.h"
#include "libprofile/core/ids.h"
#include "libprofile/core/units.h"

namespace pp::run {

/// Leaves every wait of a worker whose run was stopped by somebody else's error. Not an error of its own.
struct Stopped {};

class Coordinator {
 public:
  using Clock = std::chrono::steady_clock;
  using Lock = std::unique_lock<std::mutex>;

  /// `stall_timeout`: a worker that waits this long while no operation ends anywhere throws.
  Coordinator(int workers, Seconds stall_timeout);

  int workers() const { return static_cast<int>(slots_.size()); }
  Lock lock() { return Lock(mutex_); }

  /// `worker` is about to run `op`; nothing when it is done with its program. Also counts as progress. Throws
  /// Stopped after stop(), so that a worker that never waits ends with the others.
  void announce(WorkerId worker, const std::optional<plan::Op>& op);

  /// Blocks `worker` until `ready()`, which is called with the lock held. `what` says in words what is waited
  /// for (`the activation of ...`); it is asked only when the wait blocks. Throws Stopped after stop(),
  /// pp::Error (run) with every worker's operation when nothing moves for the stall timeout.
  void wait(Lock& lock, WorkerId worker, const std::function<bool()>& ready,
            const std::function<std::string()>& what);
  /// The calling thread's wait. `give_up` is asked without the lock, at once and then about every 50 ms: true
  /// ends the wait, which returns false. Throws Stopped after stop(), and as wait() does when several workers
  /// run and none of them waits, so that none would say it.
  bool wait_driver(Lock& lock, const std::function<bool()>& ready, const std::function<bool()>& give_up);

  /// Makes the worker, all workers, the driver look again, after what they wait for has changed under the lock.
  /// Better called without it: who wakes up takes it at once.
  void notify(WorkerId worker) { slots_[index(worker)]->condition.notify_one(); }
  void notify_all();
  void notify_driver() { driver_.notify_one(); }

  /// Ends the run: everybody who waits or will wait throws Stopped. Only the first error is kept.
  void stop(std::exception_ptr error);
  /// Null while nothing failed.
  std::exception_ptr error();

  /// `worker 1: F1.2, running`
  std::string state_of(WorkerId worker);

 private:
  friend class Respite;
  struct Slot {
    std::condition_variable condition;
    std::optional<plan::Op> op;
    std::string waiting_for;  ///< empty: running
  };

  class Watch;

  // With the lock held.
  std::string describe(std::size_t worker) const;
  std::string stall_report() const;
  bool nobody_waits() const;

  std::mutex mutex_;
  std::condition_variable driver_;
  std::vector<std::unique_ptr<Slot>> slots_;
  Seconds stall_timeout_;
  std::uint64_t progress_ = 0;  ///< operations announced and respites ended so far
  int respites_ = 0;
  bool stopped_ = false;
  std::exception_ptr error_;
};

/// While one exists, waiting is no stall: somebody is busy with what is no operation, a worker that makes its
/// weights or an observer that shows a line.
class Respite {
 public:
  explicit Respite(Coordinator& coordinator);
  ~Respite();
  Respite(const Respite&) = delete;
  Respite& operator=(const Respite&) = delete;

 private:
  Coordinator& coordinator_;
};

/// All `members` meet, any number of times. The last one to arrive opens it.
class Barrier {
 public:
  Barrier(Coordinator& coordinator, std::vector<WorkerId> members);
  /// Takes the lock. Throws as Coordinator::wait does.
  void arrive_and_wait(WorkerId worker, const std::string& what);

 private:
  Coordinator& coordinator_;
  std::vector<WorkerId> members_;
  std::size_t arrived_ = 0;
  long generation_ = 0;
};

}  // namespace pp::run
