// The forward-only pipeline of evaluation and inference, and what a worker writes down.
#include <algorithm>
#include <utility>

#include "libprofile/device/compute_device.h"
#include "librun/data/model_data.h"
#include "librun/worker/worker.h"

namespace pp::run {

void Worker::evaluate(const Operation& operation, const Stage& stage) {
  model::Tensors inputs = receive_inputs(operation);
  const Time begin = Coordinator::Clock::now();
  context_.feed->fill(operation, inputs, memory_);
  const PassPiece* const piece = job_.inference ? job_.inference->piece(operation) : nullptr;
  std::vector<double> shares;
  if (stage.segment().has_loss()) shares = loss_weights_.of_evaluation(operation, *context_.feed).label_shares;
  model::Pass pass =
      piece == nullptr ? stage.evaluate(inputs, generator_, nullptr, {}, std::move(shares))
                       : stage.evaluate(inputs, generator_, &piece->piece, caches_of(*piece, operation, stage));
  const Time end = job_.inference ? await_finish() : Coordinator::Clock::now();
  check_memory(memory_.peak());
  if (stage.segment().has_loss())
    job_.ledger.evaluation(context_.epoch, operation.op.micro_batch,
                           judge(stage, inputs, pass, operation.rows));
  inputs.clear();
  if (job_.inference) hand_in(operation, stage, pass, begin, end);
  send_outputs(operation, std::exchange(pass.outputs, {}));
}

std::span<model::LayerCache> Worker::caches_of(const PassPiece& piece, const Operation& operation,
                                               const Stage& stage) {
  for (const std::size_t group : piece.ended) caches_.erase({operation.op.stage, group});
  std::vector<model::LayerCache>& caches = caches_[{operation.op.stage, piece.group}];
  caches.resize(stage.segment().layers().size());
  return caches;
}

void Worker::hand_in(const Operation& operation, const Stage& stage, const model::Pass& pass, Time begin,
                     Time end) {
  const std::vector<TensorSource>& wanted = job_.setup.model.outputs;
  const std::vector<TensorSource>& here = stage.segment().outputs();
  for (std::size_t k = 0; k < wanted.size(); ++k) {
    const auto found = std::ranges::find(here, wanted[k]);
    if (found == here.end()) continue;
    job_.inference->take(operation, k, pass.outputs[static_cast<std::size_t>(found - here.begin())]);
  }
  busy_ += end - begin;
  record_.op_times[{operation.op.kind, operation.op.stage}].add(end - begin);
  record_.peak = std::max(record_.peak, memory_.peak());
  job_.passes.hand_in(operation.step, begin, end);
}

EvaluationPart Worker::judge(const Stage& stage, model::TensorSpan inputs, const model::Pass& pass,
                             int samples) const {
  const auto find = [&](const TensorSource& source) -> at::Tensor {
    const auto& in = stage.segment().inputs();
    const auto& out = stage.segment().outputs();
    if (const auto i = std::find(in.begin(), in.end(), source); i != in.end())
      return inputs[static_cast<std::size_t>(i - in.begin())];
    if (const auto o = std::find(out.begin(), out.end(), source); o != out.end())
      return pass.outputs[static_cast<std::size_t>(o - out.begin())];
    return {};
  };
  EvaluationPart part{.weight = static_cast<double>(samples)};
  const auto data_of = [&](const auto& reader) {
    model::Tensors data;
    for (const TensorSource& source : reader.sources()) data.push_back(find(source));
    return data;
  };
  if (job_.label_count && !job_.label_count->apart())
    part.weight = (*job_.label_count)(data_of(*job_.label_count)).front();
  if (part.weight != 0) part.loss_sum = pass.loss.item<double>() * part.weight;
  if (!job_.right_answers) return part;
  const model::Tensors told = data_of(*job_.right_answers);
  if (!std::ranges::all_of(told, [](const at::Tensor& tensor) { return tensor.defined(); })) return part;
  const auto [right, all] = (*job_.right_answers)(told);
  part.correct = right;
  part.predictions = all;
  return part;
}

void Worker::end_operation() {
  log_->end();
  note_peak();
}

void Worker::note_peak() {
  LoggedOp& op = log_->current();
  op.peak = memory_.peak();
  memory_.reset_peak();
  check_memory(op.peak);
  record_.peak = std::max(record_.peak, op.peak);
  op.held = memory_.live();
}

void Worker::note_bytes() {
  int in_flight = 0;
  StageBytes sum;
  for (const auto& [id, stage] : stages_) {
    in_flight += stage.flight_count();
    record_.peak_versions = std::max(record_.peak_versions, stage.version_count());
    const StageBytes bytes = stage.bytes();
    sum.weights += bytes.weights;
    sum.versions += bytes.versions;
    sum.gradients += bytes.gradients;
    sum.optimizer += bytes.optimizer;
  }
  const Bytes live = memory_.live();
  log_->current().held = live;
  const Bytes kept = live - sum.weights - sum.versions - sum.gradients - sum.optimizer;
  record_.peak_in_flight = std::max(record_.peak_in_flight, in_flight);
  record_.weights = std::max(record_.weights, sum.weights);
  record_.versions = std::max(record_.versions, sum.versions);
  record_.gradients = std::max(record_.gradients, sum.gradients);
  record_.optimizer = std::max(record_.optimizer, sum.optimizer);
  record_.saved = std::max(record_.saved, kept);
}

}  // namespace pp::run
