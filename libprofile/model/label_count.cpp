#include "libprofile/model/label_count.h"

#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>

#include <utility>

#include "libprofile/model/bound_segment.h"

namespace pp::model {

namespace {

BoundLayer bind_part(const std::vector<Layer>& nodes, const ResolvedLayer& made) {
  return bind_loss_graph({.op = {}, .inputs = {}, .attributes = {}, .nodes = nodes}, made);
}

}  // namespace

RightAnswers::RightAnswers(Answers answers)
    : answers_(std::move(answers)), told_(bind_part(answers_.nodes, answers_.made)) {}

RightAnswers::Count RightAnswers::operator()(TensorSpan data) const {
  const c10::AutoGradMode no_grad(false);
  LayerContext context;
  const Tensors told = told_.forward(data, {}, context);
  const at::Tensor counts = told[1].ne(answers_.ignored);
  const at::Tensor right = told[0].argmax(answers_.classes).eq(told[1]).logical_and_(counts);
  return {right.sum().item<std::int64_t>(), counts.sum().item<std::int64_t>()};
}

LabelCount::LabelCount(CountedLabels counted)
    : counted_(std::move(counted)), labels_(bind_part(counted_.nodes, counted_.made)) {
  if (!counted_.class_weights.empty()) class_weights_ = at::tensor(counted_.class_weights, at::kDouble);
}

double LabelCount::operator()(TensorSpan data) const {
  const c10::AutoGradMode no_grad(false);
  LayerContext context;
  const at::Tensor labels = labels_.forward(data, {}, context).front();
  const at::Tensor counts = labels.ne(counted_.ignored);
  if (!class_weights_.defined()) return counts.sum().item<double>() / counted_.per_sample;
  const at::Tensor counted = labels.masked_select(counts).cpu();
  return class_weights_.index_select(0, counted).sum().item<double>() / counted_.per_sample;
}

}  // namespace pp::model
