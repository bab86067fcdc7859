// Receives and sends, derived from the tensor edges between stages; and where weights live on the host, what
// a worker loads and evicts.
#include <algorithm>
#include <utility>

#include "libprofile/device/compute_device.h"
#include "libprofile/device/hand_over.h"
#include "librun/stage/host_memory.h"
#include "librun/swap/residency.h"
#include "librun/worker/worker.h"

namespace pp::run {

std::int64_t Worker::number_of(const Operation& operation) const {
  const bool trains = context_.trains();
  const std::int64_t step = trains ? operation.step : context_.epoch;
  return step * (trains ? job_.numbering.step_micro_batches : job_.numbering.evaluation_micro_batches) +
         (trains ? operation.micro_batch : operation.local);
}

int Worker::channel_from(const Operation& operation, Direction direction, const Port& port) const {
  return job_.channels.find(direction, port.edge, owner(direction, port.peer, operation), id_);
}

void Worker::expect(const Operation& operation) {
  const auto tell = [&](Direction direction, const std::vector<Port>& ports) {
    const bool gradient = direction == Direction::gradient;
    for (const Port& port : ports)
      job_.transport->expect(channel_from(operation, direction, port),
                             gradient ? gradient_number_of(operation) : number_of(operation), operation.rows);
  };
  if (receives_inputs(operation)) tell(context_.direction, job_.channels.ports(operation.op.stage).inputs);
  if (receives_gradients(operation))
    tell(Direction::gradient, job_.channels.ports(operation.op.stage).output_gradients);
}

model::Tensors Worker::receive_inputs(const Operation& operation) {
  model::Tensors inputs(job_.wiring[index(operation.op.stage)].inputs.size());
  inputs_on_host_.assign(swapper_ ? inputs.size() : 0, at::Tensor());
  for (const Port& port : job_.channels.ports(operation.op.stage).inputs)
    inputs[port.tensor] = receive(operation, context_.direction, port);
  context_.feed->await(operation);
  return inputs;
}

void Worker::receive_gradients(const Operation& operation) {
  arrived_.resize(job_.wiring[index(operation.op.stage)].outputs.size());
  for (const Port& port : job_.channels.ports(operation.op.stage).output_gradients)
    arrived_[port.tensor].push_back(receive(operation, Direction::gradient, port));
}

at::Tensor Worker::receive(const Operation& operation, Direction direction, const Port& port) {
  const bool gradient = direction == Direction::gradient;
  const bool stays = owner(direction, port.peer, operation) == id_;
  if (stays && swapper_) {
    auto [tensor, on_host] = shelf_.take({port.edge, gradient, number_of(operation)}, device_);
    if (!gradient) inputs_on_host_[port.tensor] = std::move(on_host);
    return tensor;
  }
  const int channel = channel_from(operation, direction, port);
  at::Tensor tensor =
      job_.transport->receive(channel, gradient ? gradient_number_of(operation) : number_of(operation));
  if (stays) return tensor;
  if (tensor.device() == device_) return profile::received(profile::brought_to(device_, tensor), memory_);
  if (!device_.is_cuda()) return profile::brought_to(device_, std::move(tensor));
  std::unique_ptr<profile::Arrivals>& arrivals =
      arrivals_[{owner(direction, port.peer, operation), port.edge, gradient}];
  if (!arrivals) arrivals = profile::make_arrivals(device_);
  return profile::brought_to(*arrivals, tensor);
}

// A frame is as large as the others (check_frames).
void Worker::drop_late_gradients() {
  const StepRange& range = context_.range;
  const Step end = job_.commands.end_of_range(id_);
  for (const auto& [id, stage] : stages_) {
    for (const Port& port : job_.channels.ports(id).output_gradients) {
      const WorkerId from = job_.owners.of(port.peer, 0);
      const int first = first_backwards(job_.streams[index(from)]).at(port.peer);
      const int channel = job_.channels.find(Direction::gradient, port.edge, from, id_);
      for (Step step = std::max(range.first + first, end - job_.numbering.gradient_lag); step < end; ++step) {
        job_.transport->expect(channel, step, job_.plan.training.mini_batch);
        job_.transport->receive(channel, step);
      }
    }
  }
}

void Worker::send_outputs(const Operation& operation, model::Tensors outputs) {
  send(operation, context_.direction, job_.channels.ports(operation.op.stage).outputs, std::move(outputs));
}

void Worker::send_gradients(const Operation& operation, model::Tensors gradients) {
  send(operation, Direction::gradient, job_.channels.ports(operation.op.stage).input_gradients,
       std::move(gradients));
}

void Worker::send(const Operation& operation, Direction direction, const std::vector<Port>& ports,
                  model::Tensors tensors) {
  for (const Port& port : ports) {
    const bool stays = owner(direction, port.peer, operation) == id_;
    outbox_.push_back(stays ? tensors[port.tensor] : tensors[port.tensor].detach());
    if (!stays) leaving_.push_back(outbox_.back());
  }
  tensors.clear();
  profile::release_charges(leaving_);
  leaving_.clear();
  for (std::size_t i = 0; i < ports.size(); ++i) {
    const WorkerId to = owner(direction, ports[i].peer, operation);
    if (to == id_ && swapper_) {
      shelf_.put({ports[i].edge, direction == Direction::gradient, number_of(operation)},
                 std::move(outbox_[i]));
      continue;
    }
    const Bytes bytes(static_cast<std::int64_t>(outbox_[i].nbytes()));
    const Time begin = Coordinator::Clock::now();
    job_.transport->send(job_.channels.find(direction, ports[i].edge, id_, to), number_of(operation),
                         std::move(outbox_[i]));
    if (to == id_ || !context_.trains()) continue;
    log_->current().sent.push_back({to, bytes, begin, Coordinator::Clock::now()});
  }
  outbox_.clear();
}

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
