#include "libprofile/estimate/estimate.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "libprofile/core/error.h"
#include "libprofile/estimate/layer_work.h"

namespace pp::profile {
namespace {

constexpr std::int64_t kLargestAutomatic = 1024;

/// Bytes of state per byte of parameters.
struct Optimizer {
  const char* name;
  double state;
};
constexpr Optimizer kOptimizers[] = {{"sgd", 1}, {"adam", 2}, {"adamw", 2}, {"rmsprop", 1}, {"adagrad", 1}};

TimeStat exactly(Seconds time) { return {time, time, time, 0}; }
Bytes rounded(double bytes) { return Bytes(std::llround(bytes)); }

class Estimate {
 public:
  Estimate(const ModelGraph& model, const DeviceSpec& device, const EstimateOptions& options)
      : model_(resolve(model)), device_(device), rates_(rates_of(device, options.dtype)), options_(options) {}

  Profile run() {
    Profile profile;
    profile.context = {{"tool", "pp-profile"}, {"version", PP_VERSION}, {"device_spec", device_.name}};
    profile.model = model_.graph;
    profile.model_hash = model_hash(profile.model);
    profile.device = {.kind = device_.kind, .name = device_.name, .memory = device_.memory};
    profile.device.cores_per_device = device_.kind == DeviceKind::cpu ? 1 : 0;
    profile.dtype = options_.dtype;
    profile.mode = ProfileMode::estimated;
    for (int l = 0; l < model_.layer_count(); ++l) profile.layers.push_back(layer(l));
    if (model_.graph.loss) {
      LayerProfile& loss = profile.loss.emplace();
      loss.name = "loss";
      loss.forward_flops_per_sample = model_.loss.forward_flops;
    }
    choose_sizes(profile);
    for (const Optimizer& optimizer : kOptimizers) profile.optimizers.push_back(update(profile, optimizer));
    profile.estimated = {"forward_s",   "backward_s",      "input_gradient_s", "weight_gradient_s",
                         "saved_bytes", "workspace_bytes", "update_s"};
    return profile;
  }

 private:
  LayerProfile layer(int index) const {
    const ResolvedLayer& resolved = model_.layers[static_cast<std::size_t>(index)];
    LayerProfile layer;
    layer.name = model_.graph.layers[static_cast<std::size_t>(index)].name;
    set_parameters(layer, model_, index, options_.dtype);
    for (const ParameterSpec& buffer : resolved.buffers)
      layer.buffers += Bytes(element_count(buffer.shape) * size_of(buffer.dtype));
    layer.forward_flops_per_sample = resolved.forward_flops;
    return layer;
  }

  void choose_sizes(Profile& profile) const {
    if (!options_.automatic_sizes) {
      const auto& sizes = options_.micro_batch_sizes;
      if (sizes.empty() || std::ranges::adjacent_find(sizes, std::greater_equal()) != sizes.end()) {
        throw Error(ErrorKind::usage,
                    "micro-batch sizes " + to_text(sizes) + " must rise, each once; give them like 1,2,4");
      }
      for (const std::int64_t size : sizes) add_points(profile, size, layer_work(model_, profile.dtype, size));
      return;
    }
    for (std::int64_t size = 1; size <= kLargestAutomatic; size *= 2) {
      const std::vector<LayerWork> works = layer_work(model_, profile.dtype, size);
      const bool fits = std::ranges::all_of(works, [&](const LayerWork& work) {
        const double bytes = work.saved + work.output + work.workspace;
        return device_.memory.value == 0 || bytes <= static_cast<double>(device_.memory.value);
      });
      if (!fits && size > 1) return;
      add_points(profile, size, works);
    }
  }

  void add_points(Profile& profile, std::int64_t size, const std::vector<LayerWork>& works) const {
    profile.micro_batch_sizes.push_back(size);
    for (std::size_t l = 0; l < profile.layers.size(); ++l)
      profile.layers[l].points.push_back(point(works[l], size));
    if (profile.loss) profile.loss->points.push_back(point(works.back(), size));
  }

  LayerPoint point(const LayerWork& work, std::int64_t size) const {
    const Seconds input = time_of(work.input_gradient, device_, rates_);
    const Seconds weight = time_of(work.weight_gradient, device_, rates_);
    LayerPoint point;
    point.micro_batch_size = size;
    point.forward = exactly(time_of(work.forward, device_, rates_));
    point.backward = exactly(input + weight);
    point.input_gradient = exactly(input);
    point.weight_gradient = exactly(weight);
    point.output = rounded(work.output);
    point.saved = rounded(work.saved);
    point.saved_input = std::min(rounded(work.saved_input), point.saved);
    point.workspace = rounded(work.workspace);
    return point;
  }

  /// Reads and writes weights and state, reads the gradients and clears them.
  OptimizerProfile update(const Profile& profile, const Optimizer& optimizer) const {
    OptimizerProfile result;
    result.name = optimizer.name;
    result.state_bytes_per_parameter_byte = optimizer.state;
    for (const LayerProfile& layer : profile.layers) result.parameters += trained_bytes(layer);
    const double touched = (4 + 2 * optimizer.state) * static_cast<double>(result.parameters.value);
    result.update = exactly(time_of({.bytes = touched, .kernels = 1}, device_, rates_));
    return result;
  }

  ResolvedModel model_;
  const DeviceSpec& device_;
  const TypeRates& rates_;
  const EstimateOptions& options_;
};

}  // namespace

Profile estimate_profile(const ModelGraph& model, const DeviceSpec& device, const EstimateOptions& options) {
  return Estimate(model, device, options).run();
}

}  // namespace pp::profile
