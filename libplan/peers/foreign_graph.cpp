#include "libplan/peers/foreign_graph.h"

#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <queue>

#include "libprofile/core/index.h"
#include "libprofile/core/ops/op_table.h"

namespace pp::plan {

namespace {

/// Kahn's algorithm.
std::vector<int> sorted(const std::vector<ForeignLayer>& layers, const std::vector<std::set<int>>& consumers) {
  std::vector<std::size_t> open;
  std::priority_queue<int, std::vector<int>, std::greater<>> ready;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    open.push_back(layers[i].producers.size());
    if (open.back() == 0) ready.push(static_cast<int>(i));
  }
  std::vector<int> order;
  while (!ready.empty()) {
    order.push_back(ready.top());
    ready.pop();
    for (const int reader : consumers[at(order.back())]) {
      if (--open[at(reader)] == 0) ready.push(reader);
    }
  }
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (open[i] != 0)
      throw Error(ErrorKind::data, "node " + layers[i].profile.name + " is on a cycle, or behind one");
  }
  return order;
}

}  // namespace

TimeStat imported_time(Seconds time) { return {time, time, time, 0}; }

Profile foreign_profile(std::string_view name, std::string_view format,
                        const std::vector<ForeignLayer>& layers) {
  if (layers.empty()) throw Error(ErrorKind::data, "the graph has no layer");
  std::vector<std::set<int>> consumers(layers.size());
  for (std::size_t i = 0; i < layers.size(); ++i) {
    for (const int producer : layers[i].producers) consumers[at(producer)].insert(static_cast<int>(i));
  }
  Profile profile;
  profile.context = {{"tool", "pp-profile"}, {"version", PP_VERSION}, {"format", std::string(format)}};
  profile.model.name = name;
  profile.device.kind = DeviceKind::cuda;  // what its authors measured on
  profile.device.name = "imported";
  profile.mode = ProfileMode::imported;
  for (const LayerPoint& point : layers.front().profile.points)
    profile.micro_batch_sizes.push_back(point.micro_batch_size);
  for (const int index : sorted(layers, consumers)) {
    const ForeignLayer& source = layers[at(index)];
    Layer layer{.name = source.profile.name,
                .op = std::string(kOpaqueOp),
                .inputs = {},
                .attributes = {},
                .weights_of = {}};
    for (const int producer : source.producers) layer.inputs.push_back(layers[at(producer)].profile.name);
    const LayerPoint& smallest = source.profile.points.front();
    layer.attributes["output_bytes"] = smallest.output.value / smallest.micro_batch_size;
    if (consumers[at(index)].empty()) profile.model.outputs.push_back(layer.name);
    profile.model.layers.push_back(std::move(layer));
    profile.layers.push_back(source.profile);
  }
  profile.model = resolve(std::move(profile.model)).graph;
  profile.model_hash = model_hash(profile.model);
  // Sums of what a file says may exceed what a profile may say.
  with_context("the imported profile", [&] { profile_from_json(to_json(profile)); });
  return profile;
}

void for_each_object(ObjectReader& reader, std::string_view key,
                     const std::function<void(ObjectReader&)>& read) {
  const Json& array = reader.raw(key);
  if (!array.is_array()) reader.fail(key, "must be an array");
  const std::string pointer = append_pointer(reader.pointer(), key);
  for (std::size_t i = 0; i < array.size(); ++i) {
    ObjectReader element(array[i], append_pointer(pointer, std::to_string(i)));
    read(element);
  }
}

std::string read_id(ObjectReader& reader, std::string_view key) {
  const Json& id = reader.raw(key);
  if (id.is_number_integer()) return std::to_string(id.get<std::int64_t>());
  if (id.is_string() && !id.get<std::string>().empty()) return id.get<std::string>();
  reader.fail(key, "must be a whole number or a name");
}

bool read_flag(ObjectReader& reader, std::string_view key) {
  if (!reader.has(key)) return false;
  const Json& flag = reader.raw(key);
  if (flag.is_boolean()) return flag.get<bool>();
  if (!flag.is_number()) reader.fail(key, "must be true or false, or 1 or 0");
  return flag.get<double>() != 0;
}

Bytes read_bytes(ObjectReader& reader, std::string_view key) {
  return Bytes(std::llround(reader.number(key, {.max = double{kMostInteger}})));
}

}  // namespace pp::plan
