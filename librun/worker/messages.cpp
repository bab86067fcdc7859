// Receives and sends, derived from the tensor edges between stages.
#include "libprofile/measure/compute_device.h"
#include "libprofile/measure/hand_over.h"
#include "librun/worker/worker.h"

namespace pp::run {

Tag Worker::tag(const Turn& turn, Direction direction, const TensorSource& source, StageId consumer) const {
  const Step step = ground_.message_step + turn.step - ground_.stretch.first;
  return {direction, source.index, source.output, consumer, step, turn.micro_batch};
}

model::Tensors Worker::receive_inputs(const Turn& turn) {
  model::Tensors inputs;
  for (const StageInput& input : job_.wiring[index(turn.op.stage)].inputs) {
    at::Tensor& tensor = inputs.emplace_back();
    if (input.producer < 0) continue;
    tensor = receive(owner(StageId{input.producer}, turn),
                     tag(turn, ground_.direction, input.source, turn.op.stage));
  }
  ground_.feed->await(turn);
  return inputs;
}

std::vector<model::Tensors> Worker::receive_gradients(const Turn& turn) {
  std::vector<model::Tensors> arrived;
  for (const StageOutput& output : job_.wiring[index(turn.op.stage)].outputs) {
    model::Tensors& gradients = arrived.emplace_back();
    for (const StageOutput::Consumer& consumer : output.consumers) {
      if (!consumer.gradient) continue;
      gradients.push_back(
          receive(owner(consumer.stage, turn), tag(turn, Direction::gradient, output.source, consumer.stage)));
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

void Worker::send_outputs(const Turn& turn, model::Tensors outputs) {
  const StageWiring& wiring = job_.wiring[index(turn.op.stage)];
  std::vector<Message> messages;
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    for (const StageOutput::Consumer& consumer : wiring.outputs[k].consumers) {
      messages.push_back({owner(consumer.stage, turn),
                          tag(turn, ground_.direction, wiring.outputs[k].source, consumer.stage), outputs[k]});
    }
  }
  outputs.clear();
  send(turn, std::move(messages));
}

void Worker::send_gradients(const Turn& turn, model::Tensors gradients) {
  const StageWiring& wiring = job_.wiring[index(turn.op.stage)];
  std::vector<Message> messages;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const StageInput& input = wiring.inputs[i];
    if (input.producer < 0 || !input.gradient) continue;
    messages.push_back({owner(StageId{input.producer}, turn),
                        tag(turn, Direction::gradient, input.source, turn.op.stage), gradients[i]});
  }
  gradients.clear();
  send(turn, std::move(messages));
}

void Worker::send(const Turn& turn, std::vector<Message> messages) {
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
    if (message.to == id_ || !ground_.trains()) continue;
    record_.sent += bytes;
    const Seconds end = Coordinator::Clock::now() - job_.start;
    record_.messages.push_back({{id_, message.to, turn.op, bytes, begin, end}, turn.step});
  }
}

}  // namespace pp::run
