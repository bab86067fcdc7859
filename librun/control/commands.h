// What the driver tells its workers: commands say what to do and let steps begin. Free of Torch.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "librun/threads/coordinator.h"
#include "librun/wiring/cursor.h"

namespace pp::run {

/// What all workers do next, the same for everybody and in the same order.
struct Command {
  enum class Kind { train, evaluate, infer, snapshot, stop };
  Kind kind = Kind::stop;
  StepRange range = {};  ///< train: its steps; evaluate, infer: from 0, passes
  int epoch = 0;         ///< evaluate: its number
  Step step = 0;         ///< snapshot: updates so far
  bool last = false;     ///< snapshot: no training follows
};

/// What a driver does with its commands, for those of another process to repeat.
struct Order {
  enum class Kind { append, grant, cut };
  Kind kind = Kind::append;
  Command command = {};
  Step end = 0;                 ///< grant
  bool evaluation_too = false;  ///< cut
};

/// The driver's list of commands, given in advance and read by every worker at its own pace. Steps of training
/// are granted a little ahead, so that they follow each other without a barrier, across ranges too. Training
/// can be cut short: then every worker leaves it after the same step. A step that is granted when a worker
/// comes to it begins without a lock.
class Commands {
 public:
  /// Whose workers read the commands: all, or those of this process. Then others read theirs, which take the
  /// same decisions from the same orders: a cut takes back only what has not been granted.
  struct Readers {
    bool alone = true;
    std::vector<WorkerId> here = {};  ///< where not alone
  };
  /// Training begins and ends in whole rounds of `round` steps.
  explicit Commands(Coordinator& coordinator, Step round = 1, const Readers& readers = {true, {}});

  /// Called with each order of the driver, in their sequence.
  void mirror(std::function<void(const Order&)> tell) { tell_ = std::move(tell); }
  /// Repeats what the driver of another process did.
  void apply(const Order& order);

  /// The driver's side. Appends what is to be done; ranges follow each other.
  void train(int epoch, StepRange range);
  void evaluate(int number, Step count);
  /// Passes, which are granted as steps of training are; nothing is trained before or after.
  void infer(Step count);
  /// Every stage hands in a copy of its state.
  void snapshot(Step step, bool last);
  void stop();
  /// Steps below `end` may begin.
  void grant(Step end);
  enum class Cut { training, evaluation_too };
  /// Takes back all training that no worker has begun, but for what completes a round, and what was to follow
  /// it; with `evaluation_too` also what is left of an evaluation. Returns where training ends now.
  Step cut(Cut what);

  /// The worker's side. Blocks until there is a command after the one it had.
  Command next(WorkerId worker);
  /// Blocks until `step` of the worker's range may begin (true) or is cut off (false).
  bool admit(WorkerId worker, Step step);
  /// Where the worker's range ends as things stand.
  Step end_of_range(WorkerId worker);

 private:
  struct Entry {
    explicit Entry(const Command& what) : command(what), begun(what.range.first), open(what.range.end) {}
    Command command;
    std::atomic<Step> begun;  ///< steps below it may have been begun by some worker
    std::atomic<Step> open;   ///< steps below it need no look at the lock; the range's end but during a cut
    bool cancelled = false;
  };
  /// Where a worker stands; written by itself.
  struct Place {
    std::size_t position = 0;  ///< entries that it has begun, since the beginning of the run
    Entry* current = nullptr;
  };
  void append(const Command& command);
  Entry& entry(std::size_t position) { return entries_[position - dropped_]; }
  /// Entries that every worker has left.
  void drop();

  /// Where an entry ends when it is cut short.
  Step least_end(const Entry& entry) const;

  Monitor monitor_;
  Step round_;
  bool alone_;
  std::function<void(const Order&)> tell_;
  std::atomic<Step> granted_ = 0;
  std::deque<Entry> entries_;
  std::size_t dropped_ = 0;    ///< entries before the first one
  Step trained_ = 0;           ///< end of the last training among them
  std::vector<Place> places_;  ///< per worker
};

}  // namespace pp::run
