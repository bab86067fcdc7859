// The executor: walks the programs of one worker and runs the instructions of each operation. It knows no
// schedule and no feature.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "librun/worker/actions.h"

namespace pp::run {

/// Made, run and destroyed by the driver; run() is the whole life of its thread. What is left afterwards may be
/// read once the thread has ended.
class Worker {
 public:
  Worker(Job& job, WorkerId id);

  /// Never throws: an error stops the run through the coordinator, with worker, stage and operation in front.
  void run() noexcept;

  WorkerId id() const { return state_.id; }
  const WorkerRecord& record() const { return state_.record; }
  WorkerRecord& record() { return state_.record; }
  const std::map<StageId, Stage>& stages() const { return state_.stages; }

 private:
  /// The instructions of an operation, at work.
  struct Lowered {
    plan::OpParts parts;
    std::vector<std::unique_ptr<Action>> actions;
  };
  using Actions = std::vector<Lowered>;  ///< as plan::InstructionLists

  void serve();
  void make_stages();
  void make_stage(StageId id, const InitialState* initial);
  StageOptions options_of(StageId id) const;
  Actions actions_of(const plan::Stream& stream, Direction forwards);
  void train(const Command& command);
  void evaluate(const Command& command);
  /// Copies the stages whose first replica is here.
  void snapshot(const Command& command);
  /// All operations of the steps that are let begin.
  void walk(Cursor cursor, const Actions& actions);
  void execute(const Operation& operation, const Actions& actions);

  WorkerState state_;
  Shared shared_;
  Turn turn_{state_};
  Actions training_, forwards_;                  ///< from the first command on: ranks are connected then
  std::shared_ptr<const InitialState> initial_;  ///< until the stages are made
  std::optional<Phase> starting_;                ///< until then
};

}  // namespace pp::run
