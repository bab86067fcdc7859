#include "libplan/peers/dnn_partitioning_json.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "libplan/peers/foreign_graph.h"
#include "libplan/peers/foreign_json.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

struct DnnNode {
  std::string id;
  int layer = 0;
  bool backward = false;
  double latency_ms = 0;
  Bytes size;
  std::optional<double> transfer_ms;  ///< of its output, once it has an edge
  std::set<int> readers;              ///< other layers
};

class DnnGraph {
 public:
  explicit DnnGraph(ObjectReader& file) {
    for_each_object(file, "nodes", [&](ObjectReader& node) { read_node(node); });
    for_each_object(file, "edges", [&](ObjectReader& edge) { read_edge(edge); });
  }

  std::vector<ForeignLayer> layers(int batch_size) const {
    std::vector<ForeignLayer> layers(layer_of_class_.size());
    for (const DnnNode& node : nodes_) {
      if (node.backward) continue;
      if (layers[at(node.layer)].profile.name.empty()) layers[at(node.layer)].profile.name = "node" + node.id;
      for (const int reader : node.readers) layers[at(reader)].producers.insert(node.layer);
    }
    for (ForeignLayer& layer : layers) {
      LayerPoint& point = layer.profile.points.emplace_back();
      point.micro_batch_size = batch_size;
      point.forward = point.backward = imported_time(Seconds(0));
      point.transfer = point.gradient_transfer = Seconds(0);
    }
    for (const DnnNode& node : nodes_) add_costs(node, layers);
    return layers;
  }

 private:
  void read_node(ObjectReader& reader) {
    DnnNode node;
    node.id = read_id(reader, "id");
    const bool supported = !reader.has("supportedOnFpga") || read_flag(reader, "supportedOnFpga");
    if (!supported)
      reader.fail("node " + node.id + " does not run on accelerators, and only those are planned for");
    node.backward = read_flag(reader, "isBackwardNode");
    node.latency_ms = reader.number("fpgaLatency");
    node.size = read_bytes(reader, "size");
    const std::string color = reader.has("colorClass") ? read_id(reader, "colorClass") : "node " + node.id;
    const int next = static_cast<int>(layer_of_class_.size());
    node.layer = layer_of_class_.try_emplace(color, next).first->second;
    if (!by_id_.emplace(node.id, nodes_.size()).second) reader.fail("id", "node " + node.id + " stands twice");
    nodes_.push_back(std::move(node));
  }

  DnnNode& node(ObjectReader& reader, std::string_view key) {
    const std::string id = read_id(reader, key);
    const auto found = by_id_.find(id);
    if (found == by_id_.end()) reader.fail(key, "the file has no node " + id);
    return nodes_[found->second];
  }

  void read_edge(ObjectReader& reader) {
    DnnNode& source = node(reader, "sourceId");
    const DnnNode& reading = node(reader, "destId");
    const double cost = reader.number("cost");
    if (source.transfer_ms.value_or(cost) != cost) {
      reader.fail("cost", "the edges of node " + source.id +
                              " have unequal costs, but each is to be a transfer of " + "its whole output");
    }
    source.transfer_ms = cost;
    if (reading.layer != source.layer) source.readers.insert(reading.layer);
  }

  static void add_costs(const DnnNode& node, std::vector<ForeignLayer>& layers) {
    LayerPoint& point = layers[at(node.layer)].profile.points.front();
    const Seconds latency(node.latency_ms / 1e3);
    TimeStat& time = node.backward ? point.backward : point.forward;
    time = imported_time(time.median + latency);
    point.saved += node.size;
    if (node.readers.empty()) return;
    const auto reads_it = [&](int reader) { return layers[at(reader)].producers.count(node.layer) > 0; };
    const auto feeds_it = [&](int reader) { return layers[at(node.layer)].producers.count(reader) > 0; };
    const Seconds transfer(*node.transfer_ms / 1e3);
    if (std::all_of(node.readers.begin(), node.readers.end(), reads_it)) {
      *point.transfer += transfer;
    } else if (std::all_of(node.readers.begin(), node.readers.end(), feeds_it)) {
      *point.gradient_transfer += transfer;
    } else {
      throw Error(ErrorKind::data, "node " + node.id + " has an edge without a forward edge beside it; its " +
                                       "backward edges must all run along, or all against, forward ones");
    }
  }

  std::vector<DnnNode> nodes_;
  std::map<std::string, std::size_t> by_id_;
  std::map<std::string, int> layer_of_class_;
};

void require_names(const std::vector<ForeignLayer>& layers) {
  for (const ForeignLayer& layer : layers) {
    if (layer.profile.name.empty())
      throw Error(ErrorKind::data, "a colorClass has backward nodes only; every layer needs a forward node");
  }
}

}  // namespace

Profile import_dnn_partitioning(std::string_view text, std::string_view name, int batch_size) {
  const Json json = parse_json(text);
  ObjectReader file(json, "");
  const std::vector<ForeignLayer> layers = DnnGraph(file).layers(batch_size);
  require_names(layers);
  Profile profile = foreign_profile(name, "dnn-partitioning", layers);
  if (file.has("maxSizePerFPGA")) profile.device.memory = read_bytes(file, "maxSizePerFPGA");
  profile.estimated = {"input_gradient_s", "output_bytes", "saved_bytes", "batch_size"};
  return profile;
}

}  // namespace pp::plan
