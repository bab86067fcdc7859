#include "tests/apps/sample_profile.h"

#include <nlohmann/json.hpp>

#include "libprofile/core/file.h"

namespace pp::test {
namespace {

constexpr std::int64_t kWidth = 64;

TimeStat exactly(double ms) {
  const Seconds time(1e-3 * ms);
  return {time, time, time, 10};
}

Layer layer_of(std::size_t position, const std::string& input) {
  const std::string name = "layer" + std::to_string(position);
  if (position % 2 == 1)
    return {.name = name, .op = "relu", .inputs = {input}, .attributes = {}, .weights_of = {}};
  return {.name = name,
          .op = "linear",
          .inputs = {input},
          .attributes = {{"out_features", std::int64_t{kWidth}}, {"bias", true}},
          .weights_of = {}};
}

}  // namespace

Profile sample_profile(std::span<const double> forward_ms) {
  ModelGraph graph;
  graph.name = "sample";
  graph.inputs = {{"x", {{kWidth}, DType::float32}}};
  std::string last = "x";
  for (std::size_t l = 0; l < forward_ms.size(); ++l) {
    graph.layers.push_back(layer_of(l, last));
    last = graph.layers.back().name;
  }
  graph.outputs = {last};
  const ResolvedModel model = resolve(graph);

  Profile profile;
  profile.model = model.graph;
  profile.model_hash = model_hash(model.graph);
  profile.device = {.kind = DeviceKind::cpu,
                    .name = "sample",
                    .cores_per_device = 1,
                    .devices_busy = 1,
                    .memory = Bytes(1 << 30)};
  profile.micro_batch_sizes = {1, 2, 4, 8, 16};
  for (std::size_t l = 0; l < forward_ms.size(); ++l) {
    const bool linear = l % 2 == 0;
    LayerProfile layer;
    layer.name = graph.layers[l].name;
    layer.parameter_count = linear ? kWidth * kWidth + kWidth : 0;
    layer.parameters = Bytes(4 * layer.parameter_count);
    layer.forward_flops_per_sample = model.layers[l].forward_flops;
    for (std::int64_t size : profile.micro_batch_sizes) {
      const double forward = forward_ms[l] * static_cast<double>(size) / 16;
      LayerPoint point;
      point.micro_batch_size = size;
      point.forward = exactly(forward);
      point.backward = exactly(2 * forward);
      point.input_gradient = exactly(linear ? forward : 2 * forward);
      point.weight_gradient = exactly(linear ? forward : 0);
      point.output = point.saved = Bytes(4 * kWidth * size);
      point.saved_input = linear ? point.saved : Bytes(0);
      layer.points.push_back(point);
    }
    profile.layers.push_back(layer);
  }
  return profile;
}

std::filesystem::path write_profile(const std::filesystem::path& folder, const Profile& profile) {
  const std::filesystem::path path = folder / "profile.json";
  write_file(path, dump_json(to_json(profile)));
  return path;
}

}  // namespace pp::test
