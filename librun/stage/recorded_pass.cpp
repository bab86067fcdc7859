#include "librun/stage/recorded_pass.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "libprofile/core/error.h"
#include "libprofile/model/errors.h"

namespace pp::run {

namespace {

at::Tensor room_like(const at::Tensor& tensor) {
  return tensor.defined() ? at::empty_like(tensor.detach()) : at::Tensor();
}

model::Tensors rooms_like(model::TensorSpan tensors) {
  model::Tensors rooms;
  for (const at::Tensor& tensor : tensors) rooms.push_back(room_like(tensor));
  return rooms;
}

/// While it exists, autograd does not see that tensors are written: between recording a forward and recording
/// its backward the inputs get values, which no recorded kernel has read.
using Unseen = at::AutoDispatchBelowADInplaceOrView;

void copy_to(model::TensorSpan rooms, model::TensorSpan values) {
  const Unseen unseen;
  for (std::size_t i = 0; i < rooms.size(); ++i) {
    if (rooms[i].defined()) rooms[i].copy_(values[i]);
  }
}

model::Tensors copies_of(model::TensorSpan tensors) {
  model::Tensors copies = rooms_like(tensors);
  copy_to(copies, tensors);
  return copies;
}

/// By one kernel for all.
std::vector<model::BatchStatistics> copies_of(std::vector<model::BatchStatistics> statistics) {
  std::vector<at::Tensor> from, to;
  for (model::BatchStatistics& layer : statistics) {
    for (at::Tensor* tensor : {&layer.mean, &layer.inverse_deviation}) {
      from.push_back(*tensor);
      to.push_back(*tensor = room_like(*tensor));
    }
  }
  if (!to.empty()) at::_foreach_copy_(to, from);
  return statistics;
}

bool has_nothing(const model::Gradients& sums) {
  return std::ranges::none_of(sums.layers, [](const auto& layer) {
    return std::ranges::any_of(layer, [](const at::Tensor& sum) { return sum.defined(); });
  });
}

}  // namespace

RecordedPass::RecordedPass(const model::Segment& segment, std::shared_ptr<const model::Weights> weights,
                           model::TensorSpan inputs, const model::PassContext& context,
                           const profile::MemoryAccount& payer)
    : segment_(segment), payer_(payer), recording_(profile::make_recording(inputs.front().device())) {
  charged([&] { inputs_ = rooms_like(inputs); });
  record([&] { pass_ = segment_.forward(std::move(weights), inputs_, context); });
  charged([&] {
    if (pass_.loss.defined()) pass_.loss_gradient = room_like(pass_.loss);
  });
}

template <class Work>
void RecordedPass::charged(const Work& work) {
  {
    const profile::ChargeMemory scope(memory_, DeviceKind::cuda);
    work();
  }
  charge_.emplace(payer_, memory_.peak());
}

template <class Work>
void RecordedPass::record(const Work& work) {
  const auto what = [] { return "as a CUDA graph (without --cuda-graphs it runs kernel by kernel)"; };
  model::detail::guarded(what, [&] { charged([&] { recording_->record(work); }); });
  ++recorded_;
}

template <class Work>
void RecordedPass::run(const Work& work) {
  if (next_ == recorded_) record(work);
  recording_->replay(next_++);
}

template <class Work>
void RecordedPass::run_into(model::Gradients& sums, const Work& work) {
  const bool empty = has_nothing(sums);
  if (sums_ && sums_->empty_before != empty) {
    throw Error(ErrorKind::internal, std::string("a recorded pass is ") + (empty ? "" : "not ") +
                                         "the first of its step, and was recorded otherwise");
  }
  run(work);
  if (!sums_) {
    sums_ = {empty, sums.layers};
  } else if (empty) {
    sums.layers = sums_->after;
  }
}

void RecordedPass::receive(std::span<model::Tensors> output_gradients, double loss_weight) {
  if (output_gradients_.empty()) {
    charged([&] {
      for (const model::Tensors& arrived : output_gradients) output_gradients_.push_back(rooms_like(arrived));
    });
  }
  for (std::size_t k = 0; k < output_gradients.size(); ++k) {
    copy_to(output_gradients_[k], output_gradients[k]);
    output_gradients[k].clear();
  }
  const Unseen unseen;
  if (pass_.loss_gradient.defined()) pass_.loss_gradient.fill_(loss_weight);
}

model::Pass RecordedPass::forward(model::TensorSpan inputs) {
  copy_to(inputs_, inputs);
  recording_->replay(0);
  next_ = 1;
  model::Pass pass;
  pass.outputs = copies_of(model::TensorSpan(pass_.outputs));
  pass.loss = pass_.loss.defined() ? pass_.loss.clone() : at::Tensor();
  pass.statistics = copies_of(pass_.statistics);
  return pass;
}

model::Tensors RecordedPass::backward(std::span<model::Tensors> output_gradients, double loss_weight,
                                      model::Gradients& sums) {
  receive(output_gradients, loss_weight);
  run_into(sums, [&] {
    std::vector<model::Tensors> arrived = output_gradients_;
    input_gradients_ = segment_.backward(pass_, arrived, loss_weight, sums);
  });
  return copies_of(model::TensorSpan(input_gradients_));
}

model::Tensors RecordedPass::input_gradient(std::span<model::Tensors> output_gradients, double loss_weight) {
  receive(output_gradients, loss_weight);
  run([&] {
    std::vector<model::Tensors> arrived = output_gradients_;
    input_gradients_ = segment_.input_gradient(pass_, arrived, loss_weight);
  });
  return copies_of(model::TensorSpan(input_gradients_));
}

void RecordedPass::weight_gradient(model::Gradients& sums) {
  run_into(sums, [&] { segment_.weight_gradient(pass_, sums); });
}

RecordedPass* RecordedPasses::take(const std::shared_ptr<const model::Weights>& weights,
                                   model::TensorSpan inputs, const model::PassContext& context) {
  const std::size_t number = forwards_++;
  const std::int64_t rows = inputs.front().size(0);
  PassKind kind = kinds_[number % kinds_.size()];
  kind.sets_sums = kind.sets_sums && number < kinds_.size();  // of several mini-batches the first
  if (!warm_) rows_.insert(rows);
  if (!warm_ || kind.runs_again || !rows_.contains(rows)) return nullptr;
  ++replayed_;
  const auto free = std::ranges::find_if(
      entries_, [&](const Entry& e) { return !e.taken && e.kind == kind && e.rows == rows; });
  if (free != entries_.end()) {
    free->taken = true;
    return free->pass.get();
  }
  entries_.push_back(
      {kind, rows, true, std::make_unique<RecordedPass>(segment_, weights, inputs, context, payer_)});
  return entries_.back().pass.get();
}

void RecordedPasses::give(RecordedPass* pass) {
  std::ranges::find(entries_, pass, [](const Entry& e) { return e.pass.get(); })->taken = false;
}

void RecordedPasses::end_step() {
  warm_ = true;
  forwards_ = 0;
}

GraphCount RecordedPasses::count() const {
  GraphCount count{.recorded = std::ssize(entries_), .replayed = replayed_, .bytes = {}};
  for (const Entry& entry : entries_) count.bytes += entry.pass->bytes();
  return count;
}

}  // namespace pp::run
