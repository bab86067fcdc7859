#include "libprofile/measure/profile_part.h"

#include <string>
#include <utility>

#include "libprofile/device/process.h"
#include "libprofile/measure/measure_bytes.h"
#include "libprofile/measure/measure_times.h"
#include "libprofile/measure/measure_updates.h"

namespace pp::profile {
namespace {

LayerProfile layer_profile(const Subject& subject, int position, Bytes buffers) {
  LayerProfile layer;
  if (position == static_cast<int>(subject.part.layers.size())) {
    layer.name = "loss";
    layer.forward_flops_per_sample = subject.model.loss.forward_flops;
    return layer;
  }
  const int index = subject.part.layers[static_cast<std::size_t>(position)];
  layer.name = subject.model.graph.layers[static_cast<std::size_t>(index)].name;
  set_parameters(layer, subject.model, index, subject.options.dtype);
  layer.buffers = buffers;
  layer.forward_flops_per_sample = subject.model.layers[static_cast<std::size_t>(index)].forward_flops;
  return layer;
}

LayerPoint layer_point(const MeasuredSize& size, const LayerSamples& samples, int position) {
  LayerPoint point;
  point.micro_batch_size = size.micro_batch_size;
  point.out_of_memory = size.out_of_memory;
  if (size.out_of_memory) return point;
  const auto p = static_cast<std::size_t>(position);
  samples.fill_times(position, point);
  point.output = size.bytes.outputs[p];
  point.saved = size.bytes.saved[p].total;
  point.saved_input = size.bytes.saved[p].own_input;
  point.workspace = size.bytes.workspace[p];
  point.waiting = size.bytes.waiting[p];
  return point;
}

Context context_of(const Subject& subject, const MeasuredBytes& bytes, const MeasuredTimes& times) {
  Context context = subject.environment.context;
  context.insert(times.findings.begin(), times.findings.end());
  std::string in_flight;
  for (std::size_t i = 0; i < bytes.sizes.size(); ++i) {
    if (bytes.sizes[i].out_of_memory) continue;
    if (!in_flight.empty()) in_flight += ",";
    in_flight += std::to_string(times.in_flight[i]);
  }
  context["devices"] = to_text(subject.options.devices);
  context["micro_batches_in_flight"] = in_flight;
  return context;
}

}  // namespace

Profile profile_part(const Subject& subject, std::vector<KernelChoice> known) {
  ProfiledDevices devices(subject, sizes_to_measure(subject.options));
  const MeasuredBytes bytes = measure_bytes(devices, subject, std::move(known));
  const MeasuredTimes times = measure_times(devices, subject, bytes);

  Profile profile;
  profile.optimizers = measure_updates(devices, subject);
  profile.context = context_of(subject, bytes, times);
  profile.model = subject.model.graph;
  profile.model_hash = model_hash(profile.model);
  profile.device = described(subject.options.devices);
  profile.device.memory = devices.account().limit();
  profile.dtype = subject.options.dtype;
  profile.memory_format = subject.options.memory_format;
  profile.autocast = subject.options.autocast;
  profile.kernels = bytes.kernels;
  const std::vector<Bytes> buffers = devices.whole().front()->buffer_bytes();
  for (int position = 0; position < subject.part.positions(); ++position) {
    const bool is_loss = position == static_cast<int>(subject.part.layers.size());
    LayerProfile layer =
        layer_profile(subject, position, is_loss ? Bytes(0) : buffers[static_cast<std::size_t>(position)]);
    for (std::size_t i = 0; i < bytes.sizes.size(); ++i)
      layer.points.push_back(layer_point(bytes.sizes[i], times.samples[i], position));
    if (is_loss) {
      profile.loss = std::move(layer);
    } else {
      profile.layers.push_back(std::move(layer));
    }
  }
  for (std::size_t i = 0; i < bytes.sizes.size(); ++i) {
    profile.micro_batch_sizes.push_back(bytes.sizes[i].micro_batch_size);
    if (bytes.sizes[i].out_of_memory) continue;
    WholeModelPoint& point = profile.whole_model.emplace_back();
    point.micro_batch_size = bytes.sizes[i].micro_batch_size;
    times.samples[i].fill_times(point);
    point.peak = bytes.sizes[i].bytes.peak;
  }
  return profile;
}

}  // namespace pp::profile
