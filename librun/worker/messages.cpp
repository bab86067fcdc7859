// Receives and sends, derived from the tensor edges between stages.
#include "libprofile/measure/compute_device.h"
#include "libprofile/measure/hand_over.h"
#include "librun/worker/worker.h"

namespace pp::run {

std::vector<at::Tensor> Worker::receive_inputs(const plan::Op& op, const Piece& piece) {
  std::vector<at::Tensor> inputs;
  for (const StageInput& input : job_.wiring[index(op.stage)].inputs) {
    at::Tensor& tensor = inputs.emplace_back();
    if (input.producer < 0) continue;
    const Tag tag{Direction::activation, input.source.index, input.source.output, op.stage,
                  piece.round,           op.micro_batch};
    tensor = receive(job_.owner(StageId{input.producer}, op.micro_batch), tag);
  }
  return inputs;
}

std::vector<std::vector<at::Tensor>> Worker::receive_gradients(const plan::Op& op, const Piece& piece) {
  std::vector<std::vector<at::Tensor>> arrived;
  for (const StageOutput& output : job_.wiring[index(op.stage)].outputs) {
    std::vector<at::Tensor>& gradients = arrived.emplace_back();
    for (const StageOutput::Consumer& consumer : output.consumers) {
      if (!consumer.gradient) continue;
      const Tag tag{Direction::gradient, output.source.index, output.source.output,
                    consumer.stage,      piece.round,         op.micro_batch};
      gradients.push_back(receive(job_.owner(consumer.stage, op.micro_batch), tag));
    }
  }
  return arrived;
}

at::Tensor Worker::receive(WorkerId from, const Tag& tag) {
  at::Tensor tensor = job_.transport->receive(id_, from, tag);
  if (from == id_) return tensor;
  const bool copied = tensor.device() != device_;
  tensor = profile::brought_to(device_, std::move(tensor));
  return copied ? tensor : profile::received(tensor, memory_);
}

std::vector<Worker::Message> Worker::messages_of(StageId stage, Tag tag,
                                                 std::vector<at::Tensor> outputs) const {
  const StageWiring& wiring = job_.wiring[index(stage)];
  std::vector<Message> messages;
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    tag.layer = wiring.outputs[k].source.index;
    tag.output = wiring.outputs[k].source.output;
    for (const StageOutput::Consumer& consumer : wiring.outputs[k].consumers) {
      tag.consumer = consumer.stage;
      const bool training = tag.direction == Direction::activation;
      messages.push_back({training ? job_.owner(consumer.stage, tag.micro_batch)
                                   : job_.evaluation_owner(consumer.stage, tag.micro_batch),
                          tag, outputs[k]});
    }
  }
  outputs.clear();  // a parameter lives as long as the caller's expression
  return messages;
}

void Worker::send_gradients(const plan::Op& op, const Piece& piece, std::vector<at::Tensor> gradients) {
  const StageWiring& wiring = job_.wiring[index(op.stage)];
  std::vector<Message> messages;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const StageInput& input = wiring.inputs[i];
    if (input.producer < 0 || !input.gradient) continue;
    const Tag tag{Direction::gradient, input.source.index, input.source.output, op.stage,
                  piece.round,         op.micro_batch};
    messages.push_back({job_.owner(StageId{input.producer}, op.micro_batch), tag, gradients[i]});
  }
  gradients.clear();
  send(&op, std::move(messages));
}

void Worker::send(const plan::Op* op, std::vector<Message> messages) {
  std::vector<at::Tensor> leaving;
  for (Message& message : messages) {
    if (message.to != id_) leaving.push_back(message.tensor = message.tensor.detach());
  }
  profile::release_charges(leaving);
  leaving.clear();
  for (Message& message : messages) {
    const Bytes bytes(static_cast<std::int64_t>(message.tensor.nbytes()));
    const Seconds begin = Coordinator::Clock::now() - job_.start;
    job_.transport->send(id_, message.to, message.tag, std::move(message.tensor));
    if (message.to == id_ || op == nullptr) continue;
    record_.sent += bytes;
    if (!job_.options.trace) continue;
    record_.messages.push_back({id_, message.to, *op, bytes, begin, Coordinator::Clock::now() - job_.start});
  }
}

}  // namespace pp::run
