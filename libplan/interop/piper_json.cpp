#include "libplan/interop/piper_json.h"

#include <algorithm>
#include <map>

#include "libplan/interop/foreign_graph.h"
#include "libplan/interop/foreign_json.h"

namespace pp::plan {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

/// Bytes by neighbour.
using Sync = std::map<std::string, Bytes>;

struct Variant {
  PiperVariant costs;
  Bytes parameters;
  Sync from_producer, from_consumer;
};

struct Node {
  std::string id;
  Variant plain;
  std::optional<PiperVariant> recompute;
};

Sync read_sync(ObjectReader& reader, std::string_view key) {
  Sync sync;
  if (!reader.has(key)) return sync;
  ObjectReader neighbours(reader.raw(key), append_pointer(reader.pointer(), key));
  for (const auto& [id, value] : reader.raw(key).items()) sync[id] = read_bytes(neighbours, id);
  return sync;
}

Variant read_variant(ObjectReader& reader, TimeUnit unit) {
  const double time = reader.number("timePerSample");
  return {{Seconds(unit == TimeUnit::ms ? time / 1e3 : time), read_bytes(reader, "memoryUsageA"),
           read_bytes(reader, "memoryUsageB")},
          read_bytes(reader, "parameterSize"),
          read_sync(reader, "syncTimeFw"),
          read_sync(reader, "syncTimeBw")};
}

Node read_node(ObjectReader& reader, TimeUnit unit) {
  Node node;
  node.id = read_id(reader, "id");
  ObjectReader degrees(reader.raw("TMPCs"), append_pointer(reader.pointer(), "TMPCs"));
  if (!degrees.has("1")) degrees.fail("1", "is missing: no variant without tensor parallelism");
  std::vector<Variant> variants;
  for_each_object(degrees, "1", [&](ObjectReader& one) { variants.push_back(read_variant(one, unit)); });
  if (variants.empty()) degrees.fail("1", "lists no variant");
  const auto plain = std::min_element(variants.begin(), variants.end(), [](const Variant& a, const Variant& b) {
    return a.costs.time < b.costs.time;
  });
  const auto smallest =
      std::min_element(variants.begin(), variants.end(),
                       [](const Variant& a, const Variant& b) { return a.costs.saved < b.costs.saved; });
  node.plain = *plain;
  if (smallest->costs.saved < plain->costs.saved) node.recompute = smallest->costs;
  return node;
}

ForeignLayer layer_of(const Node& node, int batch_size) {
  const Seconds forward = node.plain.costs.time / 3;
  ForeignLayer layer;
  layer.profile.name = "node" + node.id;
  layer.profile.parameters = node.plain.parameters;
  layer.profile.parameter_count = node.plain.parameters.value / size_of(DType::float32);
  layer.profile.piper = PiperLayer{node.plain.costs, node.recompute, {}};
  LayerPoint& point = layer.profile.points.emplace_back();
  point.micro_batch_size = batch_size;
  point.forward = imported_time(forward);
  point.backward = imported_time(node.plain.costs.time - forward);
  point.saved = node.plain.costs.saved;
  return layer;
}

Bytes lookup(const Sync& sync, const std::string& id) {
  const auto found = sync.find(id);
  return found == sync.end() ? Bytes(0) : found->second;
}

class Graph {
 public:
  Graph(ObjectReader& file, int batch_size, TimeUnit unit) {
    for_each_object(file, "nodes", [&](ObjectReader& reader) {
      nodes_.push_back(read_node(reader, unit));
      if (!by_id_.emplace(nodes_.back().id, static_cast<int>(layers.size())).second)
        reader.fail("id", "node " + nodes_.back().id + " stands twice");
      layers.push_back(layer_of(nodes_.back(), batch_size));
    });
    for_each_object(file, "edges", [&](ObjectReader& edge) { read_edge(edge); });
  }

  std::vector<ForeignLayer> layers;

 private:
  int node(ObjectReader& reader, std::string_view key) const {
    const std::string id = read_id(reader, key);
    const auto found = by_id_.find(id);
    if (found == by_id_.end()) reader.fail(key, "the file has no node " + id);
    return found->second;
  }

  void read_edge(ObjectReader& reader) {
    const int producer = node(reader, "sourceId");
    const int consumer = node(reader, "destId");
    const Bytes cost = read_bytes(reader, "communicationCost");
    layers[at(consumer)].producers.insert(producer);
    const Bytes sync = lookup(nodes_[at(consumer)].plain.from_producer, nodes_[at(producer)].id) +
                       lookup(nodes_[at(producer)].plain.from_consumer, nodes_[at(consumer)].id);
    layers[at(consumer)].profile.piper->incoming[layers[at(producer)].profile.name] = cost + sync;
    Bytes& output = layers[at(producer)].profile.points.front().output;
    output = std::max(output, cost);
  }

  std::vector<Node> nodes_;
  std::map<std::string, int> by_id_;
};

}  // namespace

Profile import_piper(std::string_view text, std::string_view name, int batch_size, TimeUnit unit) {
  const Json json = parse_json(text);
  ObjectReader file(json, "");
  Profile profile = foreign_profile(name, "piper", Graph(file, batch_size, unit).layers, batch_size);
  if (file.has("maxMemoryPerDevice")) profile.device.memory = read_bytes(file, "maxMemoryPerDevice");
  for (const char* key : {"bandwidth", "mbsInBatch"}) {
    if (file.has(key)) profile.context[key] = file.raw(key).dump();
  }
  profile.estimated = {"input_gradient_s", "forward_s", "saved_bytes", "batch_size"};
  return profile;
}

}  // namespace pp::plan
