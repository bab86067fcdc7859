// The executor: walks the programs of one worker, receives before and sends after each operation what the
// tensor edges say, and writes down times and bytes. It knows no schedule.
#pragma once

#include <ATen/core/Generator.h>

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "libprofile/device/memory_meter.h"
#include "libprofile/device/queued_work.h"
#include "librun/options/position.h"
#include "librun/report/record.h"
#include "librun/server/remote_server.h"
#include "librun/server/replica.h"
#include "librun/stage/stage.h"
#include "librun/swap/swapper.h"
#include "librun/wiring/cursor.h"
#include "librun/worker/data_feed.h"
#include "librun/worker/job.h"
#include "librun/worker/operation_log.h"
#include "librun/worker/reductions.h"

namespace pp::run {

/// Made, run and destroyed by the driver; run() is the whole life of its thread. What is left afterwards may be
/// read once the thread has ended.
class Worker {
 public:
  Worker(Job& job, WorkerId id);

  /// Never throws: an error stops the run through the coordinator, with worker, stage and operation in front.
  void run() noexcept;

  WorkerId id() const { return id_; }
  const WorkerRecord& record() const { return record_; }
  WorkerRecord& record() { return record_; }
  const std::map<StageId, Stage>& stages() const { return stages_; }

 private:
  using Time = Coordinator::Clock::time_point;

  /// What the commands' ranges run on.
  struct WorkerContext {
    DataFeed* feed = nullptr;
    const Owners* owners = nullptr;
    Direction direction = Direction::activation;  ///< of what forwards send; evaluation: no backward follows
    StepRange range;
    int epoch = 0;
    bool trains() const { return direction == Direction::activation; }
  };

  void serve();
  void make_stages();
  void make_stage(std::size_t stage);
  /// Where the stage's replicas train around a server.
  void join_server(Stage& stage);
  void leave_server();
  /// Whether this is the first replica, which is beside the server.
  bool keeps_server() const;
  void train(const Command& command, DataFeed& feed);
  void evaluate(const Command& command, DataFeed& feed);
  /// Copies the stages whose first replica is here.
  void snapshot(const Command& command);
  /// All operations of the steps that are let begin.
  void walk(Cursor cursor);

  void execute(const Operation& operation);
  /// Of an operation. Throws OutOfMemory when it is above the limit.
  void check_memory(Bytes peak) const;
  void dispatch(const Operation& operation);
  void forward(const Operation& operation, Stage& stage);
  void evaluate(const Operation& operation, const Stage& stage);
  void recompute(const Operation& operation, Stage& stage);
  void backward(const Operation& operation, Stage& stage);
  void weight_gradient(const Operation& operation, Stage& stage);
  void all_reduce(const Operation& operation, Stage& stage);
  /// Whether the stage's sums begin beside its last backward of a step: where the plan counts on it, and
  /// somebody else can go on with them.
  bool overlaps_sums(StageId stage) const;
  OverlappedSum& sum_of(const Operation& operation, Stage& stage);
  /// Who begins sums as the layers of a backward are through; null: nobody.
  model::LayerObserver* watches(const Operation& operation, Stage& stage);
  /// What a replica's mini-batch weighs among all replicas' ones that the stage's update joins.
  double share_of_round(const Operation& operation);
  LossWeight loss_weight(const Operation& operation) {
    return loss_weights_.of(operation, context_.range.epoch_first, *context_.feed);
  }
  /// What the stage shares with others is summed whole. Returns the seconds of this worker's own copies.
  Seconds spread_tied(StageId id, Stage& stage);
  void reduce_statistics(StageId id, Stage& stage);
  void tied_all_reduce(const Operation& operation);
  void update(const Operation& operation, Stage& stage);
  /// Behind an update of this replica's part of the weights, which began then.
  void spread_weights(const Operation& operation, Stage& stage, Time begin);
  // Where weights are swapped (messages.cpp).
  void load(const Operation& operation, Stage& stage);
  void evict(const Operation& operation, Stage& stage);
  /// Before an operation: its stage is on the device, and what a task before it has left for later ones is not.
  void make_ready(const Operation& operation);
  /// Begins to copy an updated stage to the host, once.
  void write_back(StageId id, Stage& stage);
  /// The inputs of a forward that runs again go to the host; come back.
  void stash(const Operation& operation, const model::Tensors& inputs);
  model::Tensors unstash(const Operation& operation);
  /// Whether the update of the stage that the load is for stands in front of the next eviction.
  std::map<StageId, std::vector<bool>> loads_for_updates() const;
  /// Of a stage, which is brought to the device for it where it is not there.
  std::vector<Stage::LayerState> snapshot_of(StageId id, Stage& stage);
  /// Whether the stage's state of the snapshots is this worker's.
  bool hands_in(StageId stage) const;
  double rate(const Operation& operation) const;
  /// Before the first update of a step, with all workers: whether losses and gradients are finite, and whether
  /// their norm is too large, which scales the gradients of this worker's stages.
  void settle(Step step);
  struct Norm {
    int stage = 0;
    double square = 0;
  };
  std::map<std::pair<std::int64_t, std::int64_t>, Norm> gather_norms();
  void clip(double norm);
  void scale_gradients(double factor);

  model::RandomKey key(const Operation& operation) const {
    return {job_.options.seed, operation.step, operation.micro_batch};
  }
  WorkerId owner(Direction direction, StageId stage, const Operation& operation) const {
    const Owners& owners = direction == Direction::gradient ? job_.backward_owners : *context_.owners;
    return owners.of(stage, operation.local);
  }
  bool receives_inputs(const Operation& operation) const { return operation.op.kind == plan::OpKind::forward; }
  bool receives_gradients(const Operation& operation) const {
    return operation.op.kind == plan::OpKind::backward || operation.op.kind == plan::OpKind::input_gradient;
  }
  /// Number of the operation's messages in their channels (Channel::per_step).
  std::int64_t number_of(const Operation& operation) const;
  /// Of the gradients that it receives.
  std::int64_t gradient_number_of(const Operation& operation) const {
    return number_of(operation) - job_.numbering.gradient_lag;
  }
  int channel_from(const Operation& operation, Direction direction, const Port& port) const;
  /// Tells the transport what the operation will receive.
  void expect(const Operation& operation);
  /// In the order of the stage's inputs; undefined where the data provide them, for which this waits too.
  model::Tensors receive_inputs(const Operation& operation);
  /// Sets arrived_.
  void receive_gradients(const Operation& operation);
  /// Behind a range whose gradients lag: receives those of the last micro-batches, which nobody takes.
  void drop_late_gradients();
  /// Each output to each of its consumers.
  void send_outputs(const Operation& operation, model::Tensors outputs);
  void send_gradients(const Operation& operation, model::Tensors gradients);
  /// On this worker's device and charged to it from now on, whoever made it.
  at::Tensor receive(const Operation& operation, Direction direction, const Port& port);
  /// `tensors` at the ports, all at once: what nobody here holds any longer is charged to its receivers alone.
  void send(const Operation& operation, Direction direction, const std::vector<Port>& ports,
            model::Tensors tensors);

  /// What the stage's attention keeps of the pass's sequences. Lets go those of groups that have ended.
  std::span<model::LayerCache> caches_of(const PassPiece& piece, const Operation& operation,
                                         const Stage& stage);
  /// The model's outputs and times of an inference's pass.
  void hand_in(const Operation& operation, const Stage& stage, const model::Pass& pass, Time begin, Time end);
  EvaluationPart judge(const Stage& stage, model::TensorSpan inputs, const model::Pass& pass,
                       int samples) const;

  /// Now, when the device has done all that this worker has asked of it.
  Time await_finish() const;
  /// The operation's work has been handed to the device.
  void end_operation();
  /// Throws OutOfMemory when it took more than the limit.
  void note_peak();
  void note_bytes();

  Job& job_;
  WorkerId id_;
  at::Device device_;
  at::Generator generator_;
  profile::MemoryAccount memory_;
  /// From workers on other devices: from whom, by edge, and whether it is the gradient.
  std::map<std::tuple<WorkerId, int, bool>, std::unique_ptr<profile::Arrivals>> arrivals_;
  std::map<StageId, Stage> stages_;
  std::map<StageId, OverlappedSum> sums_;      ///< until their AR
  std::optional<RemoteServer> remote_server_;  ///< none: the server is here, or there is none
  std::optional<Replica> replica_;             ///< of the one stage; none: no server
  Step trained_ = 0;                           ///< updates that the weights have had
  std::optional<Swapper> swapper_;             ///< none: weights stay on the device
  Shelf shelf_;
  std::map<StageId, std::vector<bool>> loads_;  ///< of a step: whether an update follows, in turn
  std::map<StageId, std::size_t> next_load_;
  std::map<StageId, Step> unwritten_;  ///< updated stages that have not begun to go back: after so many updates
  std::optional<plan::Op> next_op_;    ///< of the walk
  std::optional<int> micro_batch_;     ///< of the operation before; none: it had none
  std::vector<at::Tensor> inputs_on_host_;  ///< of the forward that runs; undefined: they have not been there
  WorkerContext context_;
  std::vector<model::Tensors> arrived_;  ///< gradients per output of the stage, in descending consumer order
  std::vector<at::Tensor> outbox_, leaving_;  ///< within send(): all messages; those to others
  Step settled_ = -1;                         ///< the last step that was
  std::string refused_;  ///< why its updates are not made; with OnNan::stop also those behind it
  std::optional<double> gradient_norm_;  ///< of that step, until it is written down
  LossWeights loss_weights_;
  LossScale loss_scale_;                         ///< of the step, the same on all workers
  std::shared_ptr<const InitialState> initial_;  ///< until the stages are made
  std::optional<Phase> starting_;                ///< until the stages are made
  Seconds busy_{};                               ///< of an inference
  /// Of an inference by pieces, by stage and group of sequences.
  std::map<std::pair<StageId, std::size_t>, std::vector<model::LayerCache>> caches_;
  WorkerRecord record_;          ///< in training the times are written by the log
  OperationLog* log_ = nullptr;  ///< while the thread serves
};

}  // namespace pp::run
