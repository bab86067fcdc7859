// Profiles of opaque layers for tests: times in ms and sizes in bytes as tables, one micro-batch size or
// several.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "libplan/cost/chain.h"
#include "libprofile/core/cluster.h"
#include "libprofile/core/index.h"
#include "libprofile/core/ops/op_table.h"
#include "libprofile/core/profile.h"

namespace pp::plan::test {

struct LayerRow {
  double forward_ms = 0;
  double backward_ms = 0;
  std::int64_t parameters = 0;
  std::int64_t output = 0;
  std::int64_t saved = 0;
  std::int64_t saved_input = 0;
  std::int64_t workspace = 0;
};

/// Layers a, b, c, ... (then l26, ...), a chain unless `edges` lists (producer, consumer). Sizes other than
/// `sizes.front()` cost proportionally, which makes hand calculations possible.
struct ProfileSpec {
  std::vector<LayerRow> layers;
  std::vector<std::pair<int, int>> edges;  ///< empty: the chain
  std::vector<std::int64_t> sizes{1};
};

inline std::string layer_name(std::size_t i) {
  if (i < 26) return std::string(1, static_cast<char>('a' + i));
  return std::string("l").append(std::to_string(i));
}

inline Profile make_profile(const ProfileSpec& spec) {
  Profile profile;
  profile.model.name = "example";
  profile.mode = ProfileMode::imported;
  profile.micro_batch_sizes = spec.sizes;
  std::vector<bool> read(spec.layers.size(), false);
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    Layer layer{
        .name = layer_name(i), .op = std::string(kOpaqueOp), .inputs = {}, .attributes = {}, .weights_of = {}};
    if (spec.edges.empty() && i > 0) layer.inputs.push_back(layer_name(i - 1)), read[i - 1] = true;
    for (const auto& [producer, consumer] : spec.edges) {
      if (at(consumer) != i) continue;
      layer.inputs.push_back(layer_name(at(producer)));
      read[at(producer)] = true;
    }
    profile.model.layers.push_back(layer);
    LayerProfile measured{.name = layer.name,
                          .parameter_count = 0,
                          .parameters = Bytes(spec.layers[i].parameters),
                          .buffers = {},
                          .forward_flops_per_sample = {},
                          .points = {}};
    for (const std::int64_t size : spec.sizes) {
      const LayerRow& row = spec.layers[i];
      const std::int64_t times = size / spec.sizes.front();
      LayerPoint point;
      point.micro_batch_size = size;
      point.forward.median = Seconds(row.forward_ms * 1e-3 * static_cast<double>(times));
      point.backward.median = Seconds(row.backward_ms * 1e-3 * static_cast<double>(times));
      point.output = Bytes(row.output * times);
      point.saved = Bytes(row.saved * times);
      point.saved_input = Bytes(row.saved_input * times);
      point.workspace = Bytes(row.workspace * times);
      measured.points.push_back(point);
    }
    profile.layers.push_back(measured);
  }
  for (std::size_t i = 0; i < read.size(); ++i) {
    if (!read[i]) profile.model.outputs.push_back(layer_name(i));
  }
  profile.model = resolve(profile.model).graph;
  profile.model_hash = model_hash(profile.model);
  return profile;
}

/// The layers of so many each are numbered blocks: "h.0.a", "h.0.b", "h.1.c".
inline Profile in_blocks(Profile profile, int size) {
  std::map<std::string, std::string> names;
  for (std::size_t l = 0; l < profile.layers.size(); ++l) {
    std::string& name = profile.layers[l].name;
    names[name] = "h." + std::to_string(static_cast<int>(l) / size) + "." + name;
    name = names[name];
  }
  for (Layer& layer : profile.model.layers) {
    layer.name = names.at(layer.name);
    for (std::string& input : layer.inputs) input = names.at(input);
  }
  for (std::string& output : profile.model.outputs) output = names.at(output);
  profile.model_hash = model_hash(profile.model);
  return profile;
}

/// 1 MB/ms, no latency, no memory limit unless given.
inline Cluster make_cluster(int devices, std::int64_t memory = 0, double bandwidth = 1e9) {
  return flat_cluster(devices, DeviceKind::cpu, BytesPerSecond(bandwidth), Seconds(0), Bytes(memory));
}

/// Example C: f, g, W and t = t' = 3 ms at every cut (3 MB), no optimizer state counted as time.
inline Profile example_c() {
  return make_profile({{{2, 4, 0, 3'000'000, 0, 0, 0},
                        {1, 2, 1'000'000, 3'000'000, 0, 0, 0},
                        {2, 4, 2'000'000, 3'000'000, 0, 0, 0},
                        {1, 2, 12'000'000, 3'000'000, 0, 0, 0}},
                       {},
                       {1}});
}

/// Bytes of each forward message.
inline std::vector<double> activations(const std::vector<Exchange>& exchanges) {
  std::vector<double> bytes;
  for (const Exchange& one : exchanges) bytes.push_back(one.activation);
  return bytes;
}

}  // namespace pp::plan::test
