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
  for (const LabelMean& mean : counted_.means)
    class_weights_.push_back(mean.class_weights.empty() ? at::Tensor()
                                                        : at::tensor(mean.class_weights, at::kDouble));
}

std::vector<double> LabelCount::operator()(TensorSpan data) const {
  const c10::AutoGradMode no_grad(false);
  LayerContext context;
  const Tensors labels = labels_.forward(data, {}, context);
  std::vector<double> found;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const at::Tensor counts = labels[i].ne(counted_.means[i].ignored);
    const at::Tensor& classes = class_weights_[i];
    const double sum = classes.defined()
                           ? classes.index_select(0, labels[i].masked_select(counts).cpu()).sum().item<double>()
                           : counts.sum().item<double>();
    found.push_back(sum / counted_.means[i].per_sample);
  }
  return found;
}

}  // namespace pp::model
