#include "libprofile/model/segment.h"

#include <ATen/ops/empty.h>

#include <utility>

#include "libprofile/model/bound_segment.h"
#include "libprofile/model/layer_pass.h"
#include "libprofile/model/parameters.h"
#include "libprofile/model/segment_pass.h"

namespace pp::model {

Pass::Pass() = default;
Pass::Pass(Pass&&) noexcept = default;
Pass& Pass::operator=(Pass&&) noexcept = default;
Pass::~Pass() = default;

Segment::Segment(const ResolvedModel& model, std::vector<int> layers, bool with_loss,
                 const std::vector<int>& recompute, MemoryFormat format)
    : model_(&model),
      bound_(std::make_shared<const detail::BoundSegment>(detail::bind_segment(
          model, detail::plan_segment(model, std::move(layers), with_loss, recompute), format))),
      states_(std::make_shared<detail::PassStates>(bound_->plan)) {}

const std::vector<int>& Segment::layers() const { return bound_->plan.layers; }
bool Segment::has_loss() const { return bound_->plan.with_loss; }
MemoryFormat Segment::format() const { return bound_->format; }
const std::vector<TensorSource>& Segment::inputs() const { return bound_->plan.inputs; }
const std::vector<TensorSource>& Segment::outputs() const { return bound_->plan.outputs; }
bool Segment::input_needs_gradient(int input) const {
  return bound_->plan.input_gradient[static_cast<std::size_t>(input)];
}

std::shared_ptr<Weights> Segment::initial_weights(std::uint64_t seed, DType dtype,
                                                  const at::Device& device) const {
  auto weights = std::make_shared<Weights>();
  std::vector<std::vector<at::Tensor>> by_owner(model_->layers.size());
  std::vector<ParameterPlace> places;
  for (const int layer : layers()) {
    const ResolvedLayer& resolved = model_->layers[static_cast<std::size_t>(layer)];
    std::vector<at::Tensor>& leaves = by_owner[static_cast<std::size_t>(resolved.weights_layer)];
    if (leaves.empty()) {
      for (std::size_t i = 0; i < resolved.parameters.size(); ++i) {
        const Shape& shape = resolved.parameters[i].shape;
        const at::Tensor place = at::empty(shape, at::TensorOptions(scalar_type(dtype)).device(device),
                                           memory_format(format(), std::ssize(shape)));
        places.push_back({layer, static_cast<int>(i), place});
        leaves.push_back(place.detach().requires_grad_(resolved.trained[i]));
      }
    }
    weights->layers.push_back(leaves);
  }
  draw_parameters(*model_, std::move(places), seed);
  return weights;
}

std::vector<std::vector<at::Tensor>> Segment::initial_buffers(DType dtype, const at::Device& device) const {
  std::vector<std::vector<at::Tensor>> buffers;
  for (const int layer : layers()) {
    std::vector<at::Tensor>& own = buffers.emplace_back();
    const std::size_t count = model_->layers[static_cast<std::size_t>(layer)].buffers.size();
    for (std::size_t i = 0; i < count; ++i)
      own.push_back(initial_buffer(*model_, layer, static_cast<int>(i), dtype).to(device));
  }
  return buffers;
}

std::vector<at::Tensor> Segment::held() const {
  std::vector<at::Tensor> tensors;
  for (const BoundLayer& layer : bound_->layers) {
    if (layer.held) layer.held(tensors);
  }
  return tensors;
}

Gradients Segment::empty_gradients() const {
  Gradients gradients;
  for (const int layer : layers()) {
    gradients.layers.emplace_back(model_->layers[static_cast<std::size_t>(layer)].parameters.size());
  }
  return gradients;
}

}  // namespace pp::model
