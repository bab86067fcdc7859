// Where workers leave copies of their stages and the writer takes them, so that training goes on while they are
// written.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "librun/checkpoint/manifest.h"
#include "librun/checkpoint/weights.h"
#include "librun/stage/stage.h"
#include "librun/threads/coordinator.h"
#include "librun/threads/threads.h"
#include "librun/wiring/cursor.h"

namespace pp::run {

/// All that a training goes on from, in model order.
struct TrainingState {
  NamedTensors tensors;
  NamedTensors optimizer;
};

struct Snapshot {
  Step step = 0;
  Position position = {};
  bool last = false;                           ///< the training ends here
  std::vector<Stage::LayerState> layers = {};  ///< of first replicas, in model order
  Seconds pause{};                             ///< the longest that a worker was kept from training
};

TrainingState merged(const std::vector<Stage::LayerState>& layers);

/// Holds at most one snapshot of the workers here: they wait until the one before is written.
class Snapshots {
 public:
  /// `parts`: the workers here.
  Snapshots(Coordinator& run, std::size_t parts) : monitor_(run), parts_(parts) {}

  /// A worker's side, once for each snapshot, which step and `last` tell from the one before: blocks until that
  /// is written, then hands in what the worker has.
  void begin(WorkerId worker, Step step, bool last);
  void add(Step step, bool last, std::vector<Stage::LayerState> layers, Seconds pause);

  /// The writer's side. Blocks until a snapshot is complete; nothing after close().
  std::optional<Snapshot> take();
  /// What take() gave is written.
  void written();

  /// The driver's side: what the snapshot of `step` holds is the state at `position`, so that it can be
  /// complete.
  void reached(Step step, const Position& position);
  /// Blocks until `count` snapshots in all are written.
  void await_written(int count);
  /// Whether one of the last two was copied or written meanwhile.
  bool made_between(Coordinator::Clock::time_point from, Coordinator::Clock::time_point to);
  void close();

 private:
  using Key = std::pair<Step, bool>;  ///< step, and whether it is the last
  struct Entry {
    std::size_t parts = 0;
    std::vector<Stage::LayerState> layers = {};
    Seconds pause{};
  };

  bool complete() const;

  Monitor monitor_;
  std::size_t parts_;
  std::map<Step, Position> positions_;
  std::map<Key, Entry> entries_;  ///< the first one is under way
  int written_ = 0;
  struct Span {
    Coordinator::Clock::time_point begin, end;
  };
  std::optional<Coordinator::Clock::time_point> begun_;  ///< the one that is made now
  std::optional<Span> last_;                             ///< the one before
  bool closed_ = false;
};

/// A thread that gives each snapshot to `write`. What that throws stops the run.
class SnapshotWriter {
 public:
  using Write = std::function<void(Snapshot)>;

  /// Both must outlive it.
  SnapshotWriter(Coordinator& run, Snapshots& snapshots, Write write);
  /// Waits until what has begun is written.
  ~SnapshotWriter();
  SnapshotWriter(const SnapshotWriter&) = delete;
  SnapshotWriter& operator=(const SnapshotWriter&) = delete;

 private:
  void serve() noexcept;

  Coordinator& run_;
  Snapshots& snapshots_;
  Write write_;
  Threads thread_;
};

}  // namespace pp::run
