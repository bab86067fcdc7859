#include "librun/worker/swapping.h"

#include <utility>

#include "librun/stage/host_memory.h"
#include "librun/swap/residency.h"
#include "librun/worker/actions.h"

namespace pp::run {

Swapping::Swapping(WorkerState& state)
    : state_(state),
      swapper_(state.job.coordinator, *state.job.host, state.job.plan, state.id, state.device,
               state.record.swaps) {}

void Swapping::make_ready(const plan::Op& op) {
  inputs_on_host_.clear();
  const std::optional<int> micro_batch =
      plan::has_micro_batch(op.kind) ? std::optional(op.micro_batch) : std::nullopt;
  const bool same = micro_batch && micro_batch == std::exchange(micro_batch_, micro_batch);
  if (!same) {
    micro_batch_ = micro_batch;
    shelf_.to_host(swapper_.host());
  }
  if (op.kind != plan::OpKind::load && op.kind != plan::OpKind::evict) swapper_.await(op.stage);
}

void Swapping::load(StageId id, std::int64_t updates, Stage::Hold hold, bool waits) {
  swapper_.load(id, stage(id), updates, hold);
  if (waits) swapper_.await(id);
}

void Swapping::write_back(StageId id) {
  const auto found = unwritten_.find(id);
  if (found == unwritten_.end()) return;
  swapper_.write_back(id, stage(id), found->second);
  unwritten_.erase(found);
}

void Swapping::evict(StageId id) {
  write_back(id);
  swapper_.evict(id, stage(id));
}

at::Tensor Swapping::take(const Shelf::Key& key, std::size_t tensor) {
  auto [value, on_host] = shelf_.take(key, state_.device);
  const bool gradient = std::get<1>(key);
  if (!gradient && on_host.defined()) inputs_on_host_[tensor] = std::move(on_host);
  return value;
}

void Swapping::stash(Turn& turn) {
  const StageId id = turn.operation.op.stage;
  HostStore::Tensors kept(turn.inputs.size());
  for (const Port& port : state_.job.channels.ports(id).inputs) {
    const auto on_host = inputs_on_host_.find(port.tensor);
    kept[port.tensor] = on_host != inputs_on_host_.end()
                            ? std::move(on_host->second)
                            : copied_to_host(turn.inputs[port.tensor], swapper_.host());
  }
  state_.job.host->stash(id, state_.number_of(turn.operation), std::move(kept));
}

void Swapping::unstash(Turn& turn) {
  const HostStore::Tensors stashed =
      state_.job.host->take(state_.id, turn.operation.op.stage, state_.number_of(turn.operation));
  turn.inputs.clear();
  for (const at::Tensor& input : stashed)
    turn.inputs.push_back(input.defined() ? copied_to_device(input, state_.device) : at::Tensor());
}

bool Swapping::hands_in(StageId id) const {
  const plan::Plan& plan = state_.job.plan;
  return home_of(plan, id, plan.stages[index(id)].workers.front()) == state_.id;
}

std::vector<Stage::LayerState> Swapping::snapshot(StageId id, Stage& stage) {
  const profile::ChargeMemory charged(state_.memory, state_.job.setup.devices[index(state_.id)].kind);
  load(id, state_.trained, Stage::Hold::training, /*waits=*/true);
  std::vector<Stage::LayerState> layers;
  {
    const profile::ChargeMemory elsewhere{profile::MemoryAccount()};
    layers = stage.snapshot();
  }
  swapper_.evict(id, stage);
  return layers;
}

namespace {

class Ready final : public WorkerAction {
 public:
  using WorkerAction::WorkerAction;
  void run(Turn& turn) override { shared_.swapping->make_ready(turn.operation.op); }
};

// Where the next operation needs the stage, the load takes what copying takes; else that goes on beside what
// follows.
class Load final : public WorkerAction {
 public:
  Load(const plan::Instruction& instruction, Shared& shared)
      : WorkerAction(shared), updates_(instruction.trains), waits_(instruction.waits) {}

  void run(Turn& turn) override {
    const StageId id = turn.operation.op.stage;
    if (!state_.trains())
      return shared_.swapping->load(id, state_.trained, Stage::Hold::weights, /*waits=*/false);
    state_.job.host->await(id, state_.id, turn.operation.step);  // waiting is not busy
    turn.begin();
    shared_.swapping->load(id, turn.operation.step, updates_ ? Stage::Hold::training : Stage::Hold::weights,
                           waits_);
  }

 private:
  bool updates_, waits_;
};

class Evict final : public WorkerAction {
 public:
  using WorkerAction::WorkerAction;
  void run(Turn& turn) override {
    const StageId id = turn.operation.op.stage;
    if (state_.trains() && stage_of(turn).held() == Stage::Hold::training) turn.begin();
    shared_.swapping->evict(id);
  }
};

class WriteBack final : public WorkerAction {
 public:
  using WorkerAction::WorkerAction;
  void run(Turn& turn) override {
    turn.end();
    shared_.swapping->write_back(turn.operation.op.stage);
  }
};

class Stash final : public WorkerAction {
 public:
  using WorkerAction::WorkerAction;
  void run(Turn& turn) override {
    const Operation& operation = turn.operation;
    if (operation.run_again || operation.alone) shared_.swapping->stash(turn);
    turn.inputs.clear();
    if (operation.run_again) stage_of(turn).forget(operation.op.micro_batch);
  }
};

class Unstash final : public WorkerAction {
 public:
  using WorkerAction::WorkerAction;
  void run(Turn& turn) override { shared_.swapping->unstash(turn); }
};

}  // namespace

std::unique_ptr<Action> make_swap(const plan::Instruction& instruction, Shared& shared) {
  switch (instruction.kind) {
    case plan::InstructionKind::load: return std::make_unique<Load>(instruction, shared);
    case plan::InstructionKind::evict: return std::make_unique<Evict>(shared);
    case plan::InstructionKind::write_back: return std::make_unique<WriteBack>(shared);
    case plan::InstructionKind::stash: return std::make_unique<Stash>(shared);
    case plan::InstructionKind::unstash: return std::make_unique<Unstash>(shared);
    default: return std::make_unique<Ready>(shared);
  }
}

}  // namespace pp::run
