// The document from what was measured.
#include "libprofile/device/process.h"
#include "libprofile/measure/profiling.h"

namespace pp::profile {

LayerProfile Profiling::layer_result(int position) const {
  const std::size_t p = static_cast<std::size_t>(position);
  LayerProfile layer;
  if (p < part_.layers.size()) {
    const int index = part_.layers[p];
    const ResolvedLayer& resolved = model_.layers[static_cast<std::size_t>(index)];
    layer.name = model_.graph.layers[static_cast<std::size_t>(index)].name;
    set_parameters(layer, model_, index, options_.dtype);
    layer.buffers = runners_.front()->buffer_bytes()[p];
    layer.forward_flops_per_sample = resolved.forward_flops;
  } else {
    layer.name = "loss";
    layer.forward_flops_per_sample = model_.loss.forward_flops;
  }
  for (const Size& size : sizes_) {
    LayerPoint& point = layer.points.emplace_back();
    point.micro_batch_size = size.micro_batch_size;
    point.out_of_memory = size.out_of_memory;
    if (size.out_of_memory) continue;
    size.samples.fill_times(position, point);
    point.output = size.bytes.outputs[p];
    point.saved = size.bytes.saved[p].total;
    point.saved_input = size.bytes.saved[p].own_input;
    point.workspace = size.bytes.workspace[p];
    point.waiting = size.bytes.waiting[p];
  }
  return layer;
}

Context Profiling::context() const {
  Context context = environment_.context;
  context.insert(findings_.begin(), findings_.end());
  std::string in_flight;
  for (const Size& size : sizes_) {
    if (size.out_of_memory) continue;
    if (!in_flight.empty()) in_flight += ",";
    in_flight += std::to_string(size.in_flight);
  }
  context["devices"] = to_text(options_.devices);
  context["micro_batches_in_flight"] = in_flight;
  return context;
}

Profile Profiling::result() const {
  Profile profile;
  profile.context = context();
  profile.model = model_.graph;
  profile.model_hash = model_hash(profile.model);
  profile.device = described(options_.devices);
  profile.device.memory = accounts_.front().limit();
  profile.dtype = options_.dtype;
  profile.memory_format = options_.memory_format;
  profile.kernels = kernels_;
  const int layers = static_cast<int>(part_.layers.size());
  for (int layer = 0; layer < layers; ++layer) profile.layers.push_back(layer_result(layer));
  if (part_.with_loss) profile.loss = layer_result(layers);
  for (const Size& size : sizes_) {
    profile.micro_batch_sizes.push_back(size.micro_batch_size);
    if (size.out_of_memory) continue;
    WholeModelPoint& point = profile.whole_model.emplace_back();
    point.micro_batch_size = size.micro_batch_size;
    size.samples.fill_times(point);
    point.peak = size.bytes.peak;
  }
  profile.optimizers = optimizers_;
  return profile;
}

}  // namespace pp::profile
