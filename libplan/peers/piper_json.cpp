#include "libplan/peers/piper_json.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>

#include "libplan/peers/foreign_graph.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

/// Bytes by neighbour.
using Sync = std::map<std::string, Bytes>;

struct Variant {
  PiperVariant costs;
  Bytes parameters;
  Sync from_producer, from_consumer;
};

/// The variants of one tensor-parallel degree.
struct Choice {
  Variant plain;
  std::optional<PiperVariant> recompute;
};

struct PiperNode {
  std::string id;
  std::map<int, Choice> choices;  ///< by degree; 1 is there
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

Choice read_choice(ObjectReader& degrees, std::string_view degree, TimeUnit unit) {
  std::vector<Variant> variants;
  for_each_object(degrees, degree, [&](ObjectReader& one) { variants.push_back(read_variant(one, unit)); });
  if (variants.empty()) degrees.fail(degree, "lists no variant");
  const auto plain = std::min_element(variants.begin(), variants.end(), [](const Variant& a, const Variant& b) {
    return a.costs.time < b.costs.time;
  });
  const auto smallest =
      std::min_element(variants.begin(), variants.end(),
                       [](const Variant& a, const Variant& b) { return a.costs.saved < b.costs.saved; });
  Choice choice{*plain, std::nullopt};
  if (smallest->costs.saved < plain->costs.saved) choice.recompute = smallest->costs;
  return choice;
}

PiperNode read_node(ObjectReader& reader, TimeUnit unit) {
  PiperNode node;
  node.id = read_id(reader, "id");
  ObjectReader degrees(reader.raw("TMPCs"), append_pointer(reader.pointer(), "TMPCs"));
  if (!degrees.has("1")) degrees.fail("1", "is missing: no variant without tensor parallelism");
  for (const auto& [degree, variants] : reader.raw("TMPCs").items()) {
    int number = 0;
    const auto [end, error] = std::from_chars(degree.data(), degree.data() + degree.size(), number);
    if (error != std::errc{} || end != degree.data() + degree.size() || number < 1)
      degrees.fail(degree, "is no tensor-parallel degree; give a number of devices");
    if (number == 1 || !variants.empty()) node.choices.emplace(number, read_choice(degrees, degree, unit));
  }
  return node;
}

ForeignLayer layer_of(const PiperNode& node, int batch_size) {
  const Choice& whole = node.choices.at(1);
  const PiperVariant& costs = whole.plain.costs;
  const Seconds forward = costs.time / 3;
  ForeignLayer layer;
  layer.profile.name = "node" + node.id;
  layer.profile.parameters = whole.plain.parameters;
  layer.profile.parameter_count = whole.plain.parameters.value / size_of(DType::float32);
  layer.profile.piper = PiperLayer{costs, whole.recompute, {}};
  for (const auto& [degree, choice] : node.choices) {
    if (degree == 1) continue;
    const Variant& plain = choice.plain;
    layer.profile.piper->tensor.push_back({degree, plain.parameters, plain.costs, choice.recompute, {}, {}});
  }
  LayerPoint& point = layer.profile.points.emplace_back();
  point.micro_batch_size = batch_size;
  point.forward = imported_time(forward);
  point.backward = imported_time(costs.time - forward);
  point.saved = costs.saved;
  return layer;
}

Bytes lookup(const Sync& sync, const std::string& id) {
  const auto found = sync.find(id);
  return found == sync.end() ? Bytes(0) : found->second;
}

class PiperGraph {
 public:
  PiperGraph(ObjectReader& file, int batch_size, TimeUnit unit) {
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
    charge_reader(producer, consumer, cost);
    charge_producer(producer, consumer, cost);
    Bytes& output = layers[at(producer)].profile.points.front().output;
    output = std::max(output, cost);
  }

  PiperLayer& costs(int node) { return *layers[at(node)].profile.piper; }

  void charge_reader(int producer, int consumer, Bytes cost) {
    const std::string& name = layers[at(producer)].profile.name;
    const auto charge = [&](int degree) {
      return cost +
             lookup(nodes_[at(consumer)].choices.at(degree).plain.from_producer, nodes_[at(producer)].id);
    };
    costs(consumer).incoming[name] = charge(1);
    for (PiperShare& share : costs(consumer).tensor) share.incoming[name] = charge(share.degree);
  }

  void charge_producer(int producer, int consumer, Bytes cost) {
    const std::string& name = layers[at(consumer)].profile.name;
    const auto charge = [&](int degree) {
      return cost +
             lookup(nodes_[at(producer)].choices.at(degree).plain.from_consumer, nodes_[at(consumer)].id);
    };
    if (charge(1) != costs(consumer).incoming.at(layers[at(producer)].profile.name))
      costs(producer).outgoing[name] = charge(1);
    for (PiperShare& share : costs(producer).tensor) share.outgoing[name] = charge(share.degree);
  }

  std::vector<PiperNode> nodes_;
  std::map<std::string, int> by_id_;
};

}  // namespace

Profile import_piper(std::string_view text, std::string_view name, int batch_size, TimeUnit unit) {
  const Json json = parse_json(text);
  ObjectReader file(json, "");
  Profile profile = foreign_profile(name, "piper", PiperGraph(file, batch_size, unit).layers);
  if (file.has("maxMemoryPerDevice")) profile.device.memory = read_bytes(file, "maxMemoryPerDevice");
  for (const char* key : {"bandwidth", "mbsInBatch"}) {
    if (file.has(key)) profile.context[key] = file.raw(key).dump();
  }
  profile.estimated = {"input_gradient_s", "forward_s", "saved_bytes", "batch_size"};
  return profile;
}

}  // namespace pp::plan
