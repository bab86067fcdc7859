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
  return profile::received(profile::brought_to(device_, std::move(tensor)), memory_);
}

void Worker::send_outputs(const plan::Op& op, const Piece& piece, std::vector<at::Tensor> outputs) {
  const StageWiring& wiring = job_.wiring[index(op.stage)];
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    const StageOutput& output = wiring.outputs[k];
    for (const StageOutput::Consumer& consumer : output.consumers) {
      const Tag tag{Direction::activation, output.source.index, output.source.output,
                    consumer.stage,        piece.round,         op.micro_batch};
      const bool last = &consumer == &output.consumers.back();
      send(op, job_.owner(consumer.stage, op.micro_batch), tag, last ? std::move(outputs[k]) : outputs[k]);
    }
  }
}

void Worker::send_gradients(const plan::Op& op, const Piece& piece, std::vector<at::Tensor> gradients) {
  const StageWiring& wiring = job_.wiring[index(op.stage)];
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const StageInput& input = wiring.inputs[i];
    if (input.producer < 0 || !input.gradient) continue;
    const Tag tag{Direction::gradient, input.source.index, input.source.output, op.stage,
                  piece.round,         op.micro_batch};
    send(op, job_.owner(StageId{input.producer}, op.micro_batch), tag, std::move(gradients[i]));
  }
}

void Worker::send(const plan::Op& op, WorkerId to, const Tag& tag, at::Tensor tensor) {
  const Bytes bytes(static_cast<std::int64_t>(tensor.nbytes()));
  const Seconds begin = Coordinator::Clock::now() - job_.start;
  if (to != id_) profile::release_charge(tensor);
  job_.transport->send(id_, to, tag, std::move(tensor));
  if (to == id_) return;
  record_.sent += bytes;
  if (!job_.options.trace) return;
  record_.messages.push_back({id_, to, op, bytes, begin, Coordinator::Clock::now() - job_.start});
}

}  // namespace pp::run
