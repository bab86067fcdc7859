#include <ATen/ops/_log_softmax_backward_data.h>
#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/nll_loss_backward.h>
#include <ATen/ops/nll_loss_forward.h>

#include <algorithm>
#include <array>
#include <string>

#include "libprofile/core/error.h"
#include "libprofile/core/ops/op_table.h"
#include "libprofile/model/ops/forward.h"

namespace pp::model {
namespace {

constexpr std::int64_t kMean = 1;  // of nll_loss: at::Reduction::Mean

/// 1 for each label that counts, [labels, 1].
at::Tensor counts(const at::Tensor& labels, std::int64_t ignored, at::ScalarType type) {
  return labels.ne(ignored).to(type).unsqueeze(1);
}

// Prediction [n, ..., classes], or of images [n, classes, h, w], target [n, ...] of class numbers; the mean
// over the targets that are not `ignored`, NaN when all are. A share `smoothing` of a target lies on all
// classes alike.
Forward bind_cross_entropy(const Attributes& attributes) {
  return [ignored = integer(attributes, "ignore_index"), smoothing = number(attributes, "label_smoothing")](
             TensorSpan inputs, TensorSpan /*weights*/, LayerContext& context) -> Tensors {
    const bool image = inputs[0].dim() == 4;
    const at::Tensor shares = at::log_softmax(image ? inputs[0].movedim(1, -1) : inputs[0], -1);
    const at::Tensor target = inputs[1].flatten().to(at::kLong);
    const at::Tensor rows = shares.flatten(0, -2);
    const auto [loss, total] = at::nll_loss_forward(rows, target, {}, kMean, ignored);
    ops::save(context, {shares, target, total});
    if (smoothing == 0) return {loss};
    const at::Tensor alike =
        rows.mean(-1, /*keepdim=*/true).masked_fill(target.eq(ignored).unsqueeze(1), 0).sum();
    return {loss.mul(1 - smoothing).sub(alike.div(total).mul(smoothing))};
  };
}

WrittenBackward cross_entropy_backward(const Attributes& attributes) {
  return {.inputs = [ignored = integer(attributes, "ignore_index"),
                     smoothing = number(attributes, "label_smoothing")](Tensors& saved, TensorSpan /*weights*/,
                                                                        const at::Tensor& gradient) -> Tensors {
    const at::Tensor shares = saved[0].flatten(0, -2);
    at::Tensor by_share = at::nll_loss_backward(gradient, shares, saved[1], {}, kMean, ignored, saved[2]);
    if (smoothing != 0) {
      const at::Tensor of_each = gradient.div(saved[2]).mul(smoothing / static_cast<double>(shares.size(1)));
      by_share = by_share.mul(1 - smoothing).sub(counts(saved[1], ignored, shares.scalar_type()).mul(of_each));
    }
    const at::Tensor by_logit =
        at::_log_softmax_backward_data(by_share, shares, -1, shares.scalar_type()).view(saved[0].sizes());
    return {by_logit.dim() == 4 ? by_logit.movedim(-1, 1).contiguous() : by_logit, at::Tensor()};
  }};
}

// Logits and targets of one shape, targets brought between 0 and 1; the mean over all elements.
at::Tensor binary_cross_entropy(const at::Tensor& prediction, const at::Tensor& target) {
  return at::binary_cross_entropy_with_logits(prediction, target.to(prediction.scalar_type()).clamp(0, 1));
}

// Prediction and target of one shape; the mean over all elements.
at::Tensor mse(const at::Tensor& prediction, const at::Tensor& target) {
  return at::mse_loss(prediction, target.to(prediction.scalar_type()));
}

/// -beta t log p - (1 - beta) (1 - t) log(1 - p) with beta the share of a sample's pixels without text. [n, h,
/// w] for both and for the result; p is kept off 0 and 1 by 1e-6.
at::Tensor balanced_cross_entropy(const at::Tensor& score, const at::Tensor& text) {
  const at::Tensor beta = text.mean({1, 2}, /*keepdim=*/true).neg().add(1.0);
  const at::Tensor p = score.clamp(1e-6, 1.0 - 1e-6);
  const at::Tensor on_text = beta.mul(text).mul(p.log());
  const at::Tensor beside_text = beta.neg().add(1.0).mul(text.neg().add(1.0)).mul(p.neg().log1p());
  return on_text.add(beside_text).neg();
}

/// -log((overlap + 1) / (union + 1)) per pixel, of boxes given by distances [n, 4, h, w] to top, right, bottom
/// and left. [n, h, w]
at::Tensor overlap_loss(const at::Tensor& box, const at::Tensor& wanted) {
  const auto area = [](const at::Tensor& d) {
    return d.select(1, 0).add(d.select(1, 2)).mul(d.select(1, 1).add(d.select(1, 3)));
  };
  const at::Tensor overlap = area(at::minimum(box, wanted));
  const at::Tensor together = area(box).add(area(wanted)).sub(overlap);
  return together.add(1.0).log().sub(overlap.add(1.0).log());
}

// Maps [n, 6, h, w] of score, four distances and angle. Zhou et al., EAST: an efficient and accurate scene text
// detector, 2017, sec. 3.4. Ours: every term is a mean within its sample (the score over all pixels, the
// geometry over those with text), so that micro-batches add up; areas are smoothed by 1; targets are brought
// into the range of scores (0 to 1) and distances (0 or more).
at::Tensor text_detection(const at::Tensor& prediction, const at::Tensor& target, double angle_weight,
                          double geometry_weight) {
  const at::Tensor wanted = target.to(prediction.scalar_type());
  const at::Tensor text = wanted.select(1, 0).clamp(0, 1);  // [n, h, w]
  const at::Tensor overlap = overlap_loss(prediction.narrow(1, 1, 4), wanted.narrow(1, 1, 4).clamp_min(0));
  const at::Tensor angle = prediction.select(1, 5).sub(wanted.select(1, 5)).cos().neg().add(1.0);
  const at::Tensor geometry = overlap.add(angle.mul(angle_weight)).mul(text);
  const at::Tensor on_text = geometry.sum({1, 2}).div(text.sum({1, 2}).clamp_min(1.0));  // [n]
  const at::Tensor score = balanced_cross_entropy(prediction.select(1, 0), text).mean({1, 2});
  return score.add(on_text.mul(geometry_weight)).mean();
}

/// The forward of a loss: prediction, target -> scalar.
template <class Function>
Forward loss(Function function) {
  return [function](TensorSpan inputs, TensorSpan /*weights*/, LayerContext& /*context*/) -> Tensors {
    return {function(inputs[0], inputs[1])};
  };
}

Forward bind_text_detection(const Attributes& attributes) {
  return loss([angle_weight = number(attributes, "angle_weight"),
               geometry_weight = number(attributes, "geometry_weight")](const at::Tensor& prediction,
                                                                        const at::Tensor& target) {
    return text_detection(prediction, target, angle_weight, geometry_weight);
  });
}

struct Row {
  std::string_view name;
  Forward (*bind)(const Attributes& attributes);
  WrittenBackward (*backward)(const Attributes& attributes) = nullptr;
};
constexpr std::array kTable{
    Row{"binary_cross_entropy", [](const Attributes&) { return loss(binary_cross_entropy); }},
    Row{"cross_entropy", bind_cross_entropy, cross_entropy_backward},
    Row{"mse", [](const Attributes&) { return loss(mse); }},
    Row{"text_detection", bind_text_detection},
};

}  // namespace

BoundLayer bind_loss(std::string_view loss, const Attributes& attributes) {
  const auto row = std::find_if(kTable.begin(), kTable.end(), [&](const Row& r) { return r.name == loss; });
  if (row == kTable.end()) throw Error(ErrorKind::internal, "no loss is named \"" + std::string(loss) + "\"");
  BoundLayer layer{row->bind(attributes)};
  if (row->backward != nullptr) layer.backward = row->backward(attributes);
  return layer;
}

std::vector<std::string_view> runnable_losses() {
  std::vector<std::string_view> names;
  for (const Row& row : kTable) names.push_back(row.name);
  return names;
}

}  // namespace pp::model
