// What a worker does where weights live on the host: it loads and evicts stages, and nothing of a task that is
// over stays on its device.
#include <utility>

#include "librun/stage/host_memory.h"
#include "librun/swap/residency.h"
#include "librun/worker/worker.h"

namespace pp::run {

std::map<StageId, std::vector<bool>> Worker::loads_for_updates() const {
  std::map<StageId, std::vector<bool>> loads;
  for (const plan::Op& op : job_.streams[index(id_)].body) {
    if (op.kind == plan::OpKind::load) loads[op.stage].push_back(false);
    if (op.kind == plan::OpKind::update) loads[op.stage].back() = true;
  }
  return loads;
}

// Where the next operation needs the stage, the load takes what copying takes; else that goes on beside what
// follows.
void Worker::load(const Operation& operation, Stage& stage) {
  const StageId id = operation.op.stage;
  if (!context_.trains()) return swapper_->load(id, stage, trained_, Stage::Hold::weights);
  std::size_t& next = next_load_[id];
  const bool updates = loads_.at(id)[next];
  next = (next + 1) % loads_.at(id).size();
  job_.host->await(id, id_, operation.step);  // waiting is not busy
  log_->begin(operation);
  swapper_->load(id, stage, operation.step, updates ? Stage::Hold::training : Stage::Hold::weights);
  if (next_op_ && next_op_->stage == id) swapper_->await(id);
  end_operation();
  note_bytes();
  log_->close();
}

void Worker::write_back(StageId id, Stage& stage) {
  const auto found = unwritten_.find(id);
  if (found == unwritten_.end()) return;
  swapper_->write_back(id, stage, found->second);
  unwritten_.erase(found);
}

void Worker::evict(const Operation& operation, Stage& stage) {
  const StageId id = operation.op.stage;
  if (!context_.trains() || stage.held() != Stage::Hold::training)
    return swapper_->evict(id, stage);  // weights that have not changed are dropped
  log_->begin(operation);
  write_back(id, stage);
  swapper_->evict(id, stage);
  end_operation();
  note_bytes();
  log_->close();
}

// Operations of a task that follow each other on one micro-batch hand over on the device.
void Worker::make_ready(const Operation& operation) {
  const std::optional<int> micro_batch =
      plan::has_micro_batch(operation.op.kind) ? std::optional(operation.op.micro_batch) : std::nullopt;
  const bool same = micro_batch && micro_batch == std::exchange(micro_batch_, micro_batch);
  if (!same) {
    micro_batch_ = micro_batch;
    shelf_.to_host(swapper_->host());
  }
  const bool swap = operation.op.kind == plan::OpKind::load || operation.op.kind == plan::OpKind::evict;
  if (!swap) swapper_->await(operation.op.stage);
}

void Worker::stash(const Operation& operation, const model::Tensors& inputs) {
  HostStore::Tensors kept(inputs.size());
  for (const Port& port : job_.channels.ports(operation.op.stage).inputs) {
    const std::size_t i = port.tensor;
    kept[i] = inputs_on_host_[i].defined() ? std::move(inputs_on_host_[i])
                                           : copied_to_host(inputs[i], swapper_->host());
  }
  job_.host->stash(operation.op.stage, number_of(operation), std::move(kept));
}

model::Tensors Worker::unstash(const Operation& operation) {
  const HostStore::Tensors stashed = job_.host->take(id_, operation.op.stage, number_of(operation));
  model::Tensors inputs;
  for (const at::Tensor& input : stashed)
    inputs.push_back(input.defined() ? copied_to_device(input, device_) : at::Tensor());
  return inputs;
}

bool Worker::hands_in(StageId stage) const {
  const WorkerId first = job_.plan.stages[index(stage)].workers.front();
  return (swapper_ ? home_of(job_.plan, stage, first) : first) == id_;
}

std::vector<Stage::LayerState> Worker::snapshot_of(StageId id, Stage& stage) {
  if (!swapper_) return stage.snapshot();
  const profile::ChargeMemory charged(memory_, job_.setup.devices[index(id_)].kind);
  swapper_->load(id, stage, trained_, Stage::Hold::training);
  swapper_->await(id);
  std::vector<Stage::LayerState> layers;
  {
    const profile::ChargeMemory elsewhere{profile::MemoryAccount()};
    layers = stage.snapshot();
  }
  swapper_->evict(id, stage);
  return layers;
}

}  // namespace pp::run
