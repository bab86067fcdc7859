#include "libprofile/model/label_count.h"

#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>

#include <utility>

#include "libprofile/model/graph_layer.h"

namespace pp::model {

LabelCount::LabelCount(CountedLabels counted)
    : counted_(std::move(counted)),
      labels_(
          bind_loss_graph({.op = {}, .inputs = {}, .attributes = {}, .nodes = counted_.nodes}, counted_.made)) {
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
