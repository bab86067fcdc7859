// The executor: walks the programs of one worker, receives before and sends after each operation what the
// tensor edges say, and writes down times and bytes. It knows no schedule.
#pragma once

#include <ATen/core/Generator.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "libprofile/measure/memory_meter.h"
#include "librun/stage/stage.h"
#include "librun/worker/job.h"
#include "librun/worker/record.h"

namespace pp::run {

/// Made, run and destroyed by the driver; run() is the whole life of its thread. What is left afterwards may be
/// read once the thread has ended.
class Worker {
 public:
  Worker(Job& job, WorkerId id);

  /// Never throws: an error stops the run through the coordinator, with worker, stage and operation in front.
  void run() noexcept;

  const WorkerRecord& record() const { return record_; }
  const std::map<StageId, Stage>& stages() const { return stages_; }

 private:
  using Time = Coordinator::Clock::time_point;

  /// One micro-batch as an operation sees it.
  struct Piece {
    Unit unit = 0;
    std::int64_t round = 0;  ///< of its messages
    int loss_index = 0;      ///< micro-batch within the unit
    std::span<const std::int64_t> samples;
    double weight = 1;  ///< n_m/N
    model::RandomKey key;
  };
  /// Where the loop stands.
  struct Position {
    int epoch = 0;
    Unit first = 0;            ///< of the epoch
    Unit unit = 0;             ///< the current step; streams: of the last backward
    std::vector<int> offsets;  ///< rows of the current step's micro-batches
  };

  void train();
  void make_stages();
  /// False when the gate closed before the end of the epoch.
  bool run_steps(Unit count);
  bool run_stream(Unit count);
  void step();

  void execute(const plan::Op& op);
  void dispatch(const plan::Op& op);
  void forward(const plan::Op& op, Stage& stage);
  void recompute(const plan::Op& op, Stage& stage);
  void backward(const plan::Op& op, Stage& stage);
  void weight_gradient(const plan::Op& op, Stage& stage);
  void all_reduce(const plan::Op& op, Stage& stage);
  /// Samples of the stage's last mini-batch over those of all its replicas' ones.
  double share_of_round(StageId stage) const;
  void tied_all_reduce(const plan::Op& op);
  void update(const plan::Op& op, Stage& stage);

  Unit unit_of(const plan::Op& op) const;
  Piece piece(const plan::Op& op) const;
  /// In the order of the stage's inputs; undefined where the data provide them.
  std::vector<at::Tensor> receive_inputs(const plan::Op& op, const Piece& piece);
  /// Fills in those that the data provide.
  void cut_data(const plan::Op& op, const Piece& piece, std::vector<at::Tensor>& inputs) const;
  /// Per output of the stage, in descending consumer order.
  std::vector<std::vector<at::Tensor>> receive_gradients(const plan::Op& op, const Piece& piece);
  void send_gradients(const plan::Op& op, const Piece& piece, std::vector<at::Tensor> gradients);
  struct Message {
    WorkerId to;
    Tag tag;
    at::Tensor tensor;
  };
  /// One for each consumer of each output; the tag says in which direction, round and micro-batch.
  std::vector<Message> messages_of(StageId stage, Tag tag, std::vector<at::Tensor> outputs) const;
  /// On this worker's device and charged to it from now on, whoever made it.
  at::Tensor receive(WorkerId from, const Tag& tag);
  /// All that an operation sends, at once: what nobody here holds any longer is charged to its receivers alone.
  /// `op` is for the trace; null: not training.
  void send(const plan::Op* op, std::vector<Message> messages);

  /// False when the run was interrupted before the end of the test set.
  bool evaluate();
  void evaluate(StageId id, const Stage& stage, int micro_batch);
  EvaluationPart judge(const Stage& stage, std::span<const at::Tensor> inputs, const model::Pass& pass,
                       std::int64_t samples) const;

  /// Now, when the device has done all that this worker has asked of it. Every operation ends here: what it
  /// gives away is complete, and what it took as long as the host's clock says.
  Time finished() const;
  void note(const plan::Op& op, Time begin, Time end);
  void note_bytes();
  void forget_old_events();

  Job& job_;
  WorkerId id_;
  at::Device device_;
  at::Generator generator_;
  profile::MemoryAccount memory_;
  std::set<std::pair<StageId, int>> recomputed_;  ///< stages and micro-batches with an R in this program
  std::map<StageId, Stage> stages_;
  std::map<StageId, StepGradients> reduced_;  ///< between AR and U
  /// Streams: the last mini-batch whose backward is done, from there to U.
  std::map<StageId, int> due_;
  std::vector<std::int64_t> order_;  ///< samples of the current epoch
  Position position_;
  std::optional<Respite> starting_;  ///< until the stages are made
  Seconds busy_{};                   ///< since the last entry of the record
  WorkerRecord record_;
};

/// What make_stages() uses: the plan's optimizer with the run's settings.
std::unique_ptr<model::Optimizer> make_optimizer(const plan::Plan& plan, const RunOptions& options);

}  // namespace pp::run
