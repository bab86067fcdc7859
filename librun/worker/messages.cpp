// What stages hand to each other, and the rows of the data.
#include <algorithm>
#include <span>
#include <tuple>
#include <utility>

#include "libprofile/device/compute_device.h"
#include "libprofile/device/hand_over.h"
#include "libprofile/device/queued_work.h"
#include "librun/worker/actions.h"

namespace pp::run {

namespace {

/// An end of messages of one kind.
class MessageEnd : public WorkerAction {
 public:
  MessageEnd(const plan::Instruction& instruction, Shared& shared)
      : WorkerAction(shared), direction_(instruction.direction), ports_(instruction.ports) {}

 protected:
  bool is_gradient() const { return direction_ == Direction::gradient; }
  WorkerId peer(const Operation& operation, const Port& port) const {
    return state_.owner(direction_, port.peer, operation);
  }

  const Direction direction_;
  const std::span<const Port> ports_;
};

class Receive final : public MessageEnd {
 public:
  Receive(const plan::Instruction& instruction, Shared& shared)
      : MessageEnd(instruction, shared), lag_(instruction.lag) {}

  void prepare(const Operation& operation) override {
    for (const Port& port : ports_)
      state_.job.transport->expect(channel(operation, port), received_number(operation), operation.rows);
  }

  void run(Turn& turn) override {
    for (const Port& port : ports_) {
      at::Tensor tensor = receive(turn.operation, port);
      if (is_gradient()) {
        turn.gradients[port.tensor].push_back(std::move(tensor));
      } else {
        turn.inputs[port.tensor] = std::move(tensor);
      }
    }
  }

 private:
  int channel(const Operation& operation, const Port& port) const {
    return state_.job.channels.find(direction_, port.edge, peer(operation, port), state_.id);
  }
  std::int64_t received_number(const Operation& operation) const { return state_.number_of(operation) - lag_; }

  /// On this worker's device and charged to it from now on, whoever made it.
  at::Tensor receive(const Operation& operation, const Port& port) {
    const WorkerId from = peer(operation, port);
    const at::Device& device = state_.device;
    if (from == state_.id && shared_.swapping)
      return shared_.swapping->take({port.edge, is_gradient(), state_.number_of(operation)}, port.tensor);
    at::Tensor tensor = state_.job.transport->receive(channel(operation, port), received_number(operation));
    if (from == state_.id) return tensor;
    if (tensor.device() == device) return profile::received(profile::brought_to(device, tensor), state_.memory);
    if (!device.is_cuda()) return profile::brought_to(device, std::move(tensor));
    std::unique_ptr<profile::Arrivals>& arrivals = arrivals_[{from, port.edge}];
    if (!arrivals) arrivals = profile::make_arrivals(device);
    return profile::brought_to(*arrivals, tensor);
  }

  const int lag_;
  std::map<std::pair<WorkerId, int>, std::unique_ptr<profile::Arrivals>>
      arrivals_;  ///< from other devices, by edge
};

/// All at once: what nobody here holds any longer is charged to its receivers alone.
class Send final : public MessageEnd {
 public:
  using MessageEnd::MessageEnd;

  void run(Turn& turn) override {
    turn.end();
    turn.inputs.clear();
    for (const Port& port : ports_) {
      const bool stays = peer(turn.operation, port) == state_.id;
      outbox_.push_back(stays ? turn.outgoing[port.tensor] : turn.outgoing[port.tensor].detach());
      if (!stays) leaving_.push_back(outbox_.back());
    }
    turn.outgoing.clear();
    turn.pass.outputs.clear();
    profile::release_charges(leaving_);
    leaving_.clear();
    for (std::size_t i = 0; i < ports_.size(); ++i) send(turn.operation, ports_[i], std::move(outbox_[i]));
    outbox_.clear();
  }

 private:
  void send(const Operation& operation, const Port& port, at::Tensor tensor) {
    const WorkerId to = peer(operation, port);
    if (to == state_.id && shared_.swapping)
      return shared_.swapping->put({port.edge, is_gradient(), state_.number_of(operation)}, std::move(tensor));
    const Bytes bytes(static_cast<std::int64_t>(tensor.nbytes()));
    const WorkerState::Time begin = Coordinator::Clock::now();
    state_.job.transport->send(state_.job.channels.find(direction_, port.edge, state_.id, to),
                               state_.number_of(operation), std::move(tensor));
    if (to == state_.id || !state_.trains()) return;
    state_.log->current().sent.push_back({to, bytes, begin, Coordinator::Clock::now()});
  }

  std::vector<at::Tensor> outbox_, leaving_;  ///< within run(): all; those to others
};

/// Waiting for rows is not busy; cutting them is (DataFeed::fill).
class Feed final : public WorkerAction {
 public:
  using WorkerAction::WorkerAction;
  void run(Turn& turn) override { state_.feed->await(turn.operation); }
};

}  // namespace

std::unique_ptr<Action> make_message(const plan::Instruction& instruction, Shared& shared) {
  if (instruction.kind == plan::InstructionKind::receive) return std::make_unique<Receive>(instruction, shared);
  if (instruction.kind == plan::InstructionKind::send) return std::make_unique<Send>(instruction, shared);
  return std::make_unique<Feed>(shared);
}

// A frame is as large as the others (check_frames).
void drop_late_gradients(const WorkerState& state) {
  Job& job = state.job;
  const Step end = job.commands.end_of_range(state.id);
  for (const auto& [id, stage] : state.stages) {
    for (const Port& port : job.channels.ports(id).output_gradients) {
      const WorkerId from = job.owners.of(port.peer, 0);
      const int first = first_backwards(job.streams[index(from)]).at(port.peer);
      const int channel = job.channels.find(Direction::gradient, port.edge, from, state.id);
      for (Step step = std::max(state.range.first + first, end - job.numbering.gradient_lag); step < end;
           ++step) {
        job.transport->expect(channel, step, job.plan.training.mini_batch);
        job.transport->receive(channel, step);
      }
    }
  }
}

}  // namespace pp::run
