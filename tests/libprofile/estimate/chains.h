// Models that are a chain of layers, their work, and a device whose rates are round, for hand arithmetic.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "libprofile/core/model/model_graph.h"
#include "libprofile/estimate/device_spec.h"
#include "libprofile/estimate/layer_work.h"

namespace pp::profile::test {

inline ModelGraph chain(std::vector<Layer> layers, TensorType input) {
  ModelGraph graph;
  graph.name = "chain";
  graph.inputs = {{"x", std::move(input)}};
  std::string last = "x";
  for (Layer& layer : layers) {
    layer.inputs = {last};
    last = layer.name;
  }
  graph.layers = std::move(layers);
  graph.outputs = {last};
  return graph;
}

inline Layer linear(const std::string& name, std::int64_t out) {
  return {.name = name, .op = "linear", .inputs = {}, .attributes = {{"out_features", out}}};
}
inline Layer layer(const std::string& name, const std::string& op, Attributes attributes = {}) {
  return {.name = name, .op = op, .inputs = {}, .attributes = std::move(attributes)};
}

inline std::vector<LayerWork> works(const ModelGraph& graph, std::int64_t size, DType dtype = DType::float32) {
  const ResolvedModel model = resolve(graph);
  return layer_work(model, split_operations(model, 1), {.dtype = dtype, .micro_batch_size = size});
}

/// All kernels together.
inline Work sum(const std::vector<Work>& works) {
  Work all;
  for (const Work& work : works) {
    all.products += work.products;
    all.vector += work.vector;
    all.bytes += work.bytes;
    all.kernels += work.kernels;
  }
  return all;
}

/// 1e12 FLOP/s and bytes/s, without anything that makes them less.
inline DeviceSpec plain_device() {
  DeviceSpec device;
  device.name = "plain";
  device.memory = Bytes(std::int64_t{1} << 33);
  device.memory_bandwidth = device.cache_bandwidth = BytesPerSecond(1e12);
  for (const DType dtype : {DType::float32, DType::bfloat16}) device.types.push_back({dtype, 1e12, 1e12, 1, 0});
  return device;
}

}  // namespace pp::profile::test
