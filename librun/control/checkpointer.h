// Checkpoints, and the weights at the end. Workers leave copies of their stages and train on; a thread makes
// files of them. Of several ranks each writes its own part, and rank 0 makes a checkpoint of all.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "librun/checkpoint/checkpoint_folder.h"
#include "librun/checkpoint/weight_output.h"
#include "librun/checkpoint/weights.h"
#include "librun/report/record.h"
#include "librun/report/report.h"
#include "librun/setup/setup.h"
#include "librun/stage/stage.h"
#include "librun/threads/coordinator.h"
#include "librun/threads/threads.h"

namespace pp::run {

/// Where a training writes its state, and what that has beside the model; on rank 0.
struct SavedFiles {
  /// Opens what will be written, so that a place that cannot be written is found before the long work. Throws
  /// pp::Error (usage).
  SavedFiles(const RunOptions& options, DType dtype, const Setup& setup);

  Metadata further;                        ///< further_state() of the start
  NamedTensors kept;                       ///< values of its `kept`
  std::optional<WeightOutput> weights;     ///< none: not asked for
  std::optional<CheckpointFolder> folder;  ///< none: no checkpoints
};

/// What a rank's workers bring to a snapshot: their part of a checkpoint is written, the rest is for the file
/// of weights.
struct CheckpointShare {
  Step step = 0;
  bool last = false;  ///< the training ends here
  Seconds pause{};    ///< the longest that a worker was kept from training
  std::vector<CheckpointPart> parts = {};
  std::string failure = {};  ///< why parts could not be written; empty: they are, or none are wanted
  std::vector<Stage::LayerState> layers = {};
};

/// Holds at most one snapshot of the workers here: they wait until the one before is written.
class Checkpointer {
 public:
  /// All must outlive it. `workers`: those of this process. What its thread throws stops the run.
  Checkpointer(Coordinator& run, const plan::Plan& plan, const RunOptions& options, const Setup& setup,
               std::size_t workers, std::unique_ptr<SavedFiles> files);
  /// Waits until what has begun is written.
  ~Checkpointer();
  Checkpointer(const Checkpointer&) = delete;
  Checkpointer& operator=(const Checkpointer&) = delete;

  /// A worker's side, once for each snapshot, which step and `last` tell from the one before: blocks until that
  /// is written, then hands in what the worker has.
  void begin(WorkerId worker, Step step, bool last);
  void add(Step step, bool last, std::vector<Stage::LayerState> layers, Seconds pause);

  /// The driver's side: what the snapshot of `step` holds is the state at `position`, so that it can be
  /// complete.
  void reached(Step step, const Position& position);
  /// Blocks until `count` snapshots in all are written.
  void await_written(int count);
  /// Whether one of the last two was copied or written meanwhile.
  bool made_between(Coordinator::Clock::time_point from, Coordinator::Clock::time_point to);
  /// What could not be written so far, each with the reason and the remedy: the training goes on without it,
  /// and what was written before stays.
  std::vector<std::string> failures();
  /// After the last one. Nothing without checkpoints.
  std::optional<CheckpointsReport> report() const;

  /// Before the first snapshot, on other ranks: who takes their shares to rank 0.
  void relay(std::function<void(CheckpointShare)> post) { post_ = std::move(post); }
  /// Rank 0: the share of another one.
  void enter(int rank, CheckpointShare share);

  /// Of a run that has stopped: waits for files that are being written, for ten stall timeouts; whether they
  /// are.
  bool written_within() const;

 private:
  using Time = Coordinator::Clock::time_point;
  using Key = std::pair<Step, bool>;  ///< step, and whether it is the last
  struct Entry {
    std::size_t workers = 0;  ///< that have handed in
    std::vector<Stage::LayerState> layers = {};
    Seconds pause{};
    std::map<int, CheckpointShare> shares = {};  ///< of the other ranks
  };
  struct Snapshot {
    Key key;
    Position position;
    std::vector<Stage::LayerState> layers;  ///< of first replicas, in model order
    Seconds pause{};
  };
  struct Span {
    Time begin, end;
  };

  void serve() noexcept;
  Seconds patience() const;
  bool complete() const;
  /// Blocks until one is complete; nothing after the last one.
  std::optional<Snapshot> take();
  void write(Snapshot snapshot);
  void note_written();
  /// Whether a part is wanted of that step.
  bool writes(Step step) const;
  /// A part that cannot be written is the share's failure.
  CheckpointShare write_share(Snapshot snapshot);
  /// Of all other ranks, by rank. Throws Stopped.
  std::vector<CheckpointShare> await_shares(Key key);
  /// With the shares of all ranks. Throws pp::Error (run) where checkpoints can never come about.
  void save(const Position& position, std::vector<CheckpointShare> shares);
  void commit(const Manifest& manifest, const std::vector<CheckpointShare>& shares);
  /// Those of the model, and all that the module's state_dict has besides.
  void write_weights(Step step, NamedTensors tensors);
  /// Those of the best checkpoint. Throws pp::Error (run).
  void write_best(const Position& position);
  std::string last_whole() const;
  void fail(std::string why);

  Coordinator& run_;
  const plan::Plan& plan_;
  const RunOptions& options_;
  const Setup& setup_;
  const std::size_t workers_;
  const std::unique_ptr<SavedFiles> files_;
  std::function<void(CheckpointShare)> post_;  ///< none: this is rank 0

  Monitor monitor_;  ///< of what follows
  std::map<Step, Position> positions_;
  std::map<Key, Entry> entries_;  ///< the first one is under way
  int written_ = 0;
  std::optional<Time> begun_;  ///< the one that is made now
  std::optional<Span> last_;   ///< the one before
  std::vector<std::string> failures_;
  bool closed_ = false;

  std::atomic<bool> writing_ = false;
  // Of the thread.
  Step saved_;  ///< of the last checkpoint, or the one that was resumed
  Time writing_since_{};
  Bytes size_;
  TimeSample pauses_, writes_;
  Threads thread_;
};

}  // namespace pp::run
