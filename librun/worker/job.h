// Everything the workers of one run share: plan and data, read-only, and the objects that they meet at.
#pragma once

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "libplan/plan/plan.h"
#include "libprofile/model/label_count.h"
#include "librun/checkpoint/weights.h"
#include "librun/control/checkpointer.h"
#include "librun/control/commands.h"
#include "librun/control/ledger.h"
#include "librun/data/dataset.h"
#include "librun/options/run_options.h"
#include "librun/server/parameter_server.h"
#include "librun/server/remote_server.h"
#include "librun/setup/setup.h"
#include "librun/swap/host_store.h"
#include "librun/threads/coordinator.h"
#include "librun/transport/collectives.h"
#include "librun/transport/device_group.h"
#include "librun/transport/mailbox.h"
#include "librun/transport/transport.h"
#include "librun/wiring/channels.h"
#include "librun/wiring/wiring.h"
#include "librun/worker/inference.h"

namespace pp::run {

/// What the stages take instead of what they draw, by name.
struct InitialState {
  StoredTensors tensors, optimizer;
};

/// Not movable: its parts refer to each other. Refers to nothing outside, so that it may be left to a worker
/// that does not come back.
struct Job {
  /// With `forward_only` an inference, else a training. `files`: null where nothing is written.
  Job(plan::Plan plan, RunOptions options, Setup setup, std::optional<ForwardOnly> forward_only = std::nullopt,
      std::unique_ptr<SavedFiles> files = nullptr);
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  /// Gives GPUs of different ranks direct ways to each other, before anything is commanded. All ranks call it.
  void connect(Mailbox& mailbox);
  /// Any thread: stops the run when a direct way has failed; ends all waits for them.
  void check_devices();
  void give_up_devices();

  bool evaluates() const { return test != nullptr; }
  /// Model-wide index of the layer whose weights entry `tied` of Plan::tied shares.
  int tied_owner(std::size_t tied) const;
  std::size_t replica_group(StageId stage) const { return index(stage); }
  std::size_t tied_group(std::size_t tied) const { return plan.stages.size() + tied; }
  bool here(WorkerId worker) const { return setup.placement.here(worker); }
  /// Replicas train around a server, which stands on the rank of the first one.
  bool served() const;
  int server_rank() const { return setup.placement.of(plan.stages.front().workers.front()); }
  /// The workers of this process.
  std::vector<WorkerId> workers_here() const;
  /// Updates that the workers of this process hand in at once: those of a step; in streams, whose replicas may
  /// take turns, each by itself.
  int updates_together() const;
  std::size_t everybody() const { return plan.stages.size() + plan.tied.size(); }

  const plan::Plan plan;
  const RunOptions options;
  std::shared_ptr<const InitialState> initial;  ///< until the workers have it; null: none
  const Setup setup;
  const bool swapped;                                      ///< weights live on the host, in training
  const std::optional<model::LabelCount> label_count;      ///< none: the loss is a mean over samples
  const std::optional<model::RightAnswers> right_answers;  ///< none: the loss has no class numbers as labels
  const bool counts_labels;  ///< in training the labels of micro-batches may differ from their samples
  std::unique_ptr<const Dataset> training;    ///< null: an inference
  std::unique_ptr<const Dataset> test;        ///< what forward-only passes read; null: no evaluation
  std::unique_ptr<Inference> inference;       ///< null: a training
  std::vector<std::vector<int>> layers;       ///< per stage
  std::vector<std::vector<int>> recompute;    ///< per stage: those of its layers that run again inside backward
  std::vector<StageWiring> wiring;            ///< per stage
  std::vector<plan::Stream> streams;          ///< per worker
  std::vector<plan::Stream> forward_streams;  ///< per worker: what an evaluation or inference runs
  Step lead;                                  ///< steps that may run from the first unfinished one on, at most
  Owners owners;
  Owners backward_owners;  ///< the same but where weights are swapped
  Owners forward_owners;
  EpochShape test_shape;  ///< its mini-batches are one micro-batch each, as large as in training
  ChannelOptions numbering;
  Channels channels;
  Coordinator coordinator;
  Commands commands;
  Ledger ledger;
  Passes passes;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<Collectives>
      collectives;                          ///< groups: replicas of each stage, then workers of each tied entry
  std::unique_ptr<HostStore> host;          ///< null: weights stay on their devices
  std::unique_ptr<ParameterServer> server;  ///< of replicas that train around one here; null: none do
  std::vector<std::shared_ptr<DeviceGroup>> direct_ways;  ///< that transport and collectives use
  Coordinator::Clock::time_point start;                   ///< zero of all recorded times
  std::unique_ptr<RequestServer> request_server;  ///< null: no replica of another rank comes to the server
  std::unique_ptr<Checkpointer> checkpointer;     ///< null: the training's state is not wanted
};

/// Whether the stage's sums begin beside its last backward of a step: where the plan counts on it, and other
/// ranks can go on with them meanwhile.
bool hides_sums(const Job& job, StageId stage);

/// What its workers' streams are lowered with, once ranks are connected.
plan::Lowering lowering_of(const Job& job, Direction forwards);

}  // namespace pp::run
