#include "libplan/peers/dnn_partitioning.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "libplan/cost/constants.h"
#include "libplan/peers/foreign_graph.h"
#include "libplan/peers/set_search.h"
#include "libprofile/core/index.h"

namespace pp::plan {

namespace {

/// Something sent once by its producer and once to each device that reads it.
struct Transfer {
  double seconds = 0;
  int readers = 0;
};

double layer_bytes(const PeerInput& input, int layer) {
  const LayerProfile& profile = input.profile.layers[at(layer)];
  return static_cast<double>(input.prices[at(layer)].saved + profile.parameters.value);
}

/// The sum over the stage of one number per layer.
class BytesPrice : public StagePrice {
 public:
  explicit BytesPrice(const PeerInput& input) : input_(input) {}
  void clear() override { sum_ = 0; }
  void add(int layer) override { sum_ += layer_bytes(input_, layer); }
  double load() const override { return sum_; }

 private:
  const PeerInput& input_;
  double sum_ = 0;
};

/// Counts for every tensor which of its ends are in the stage.
class LoadPrice : public StagePrice {
 public:
  LoadPrice(const PeerInput& input, const PeerOptions& options, double limit)
      : input_(input), limit_(limit), owned_(at(input.size())), read_(at(input.size())) {
    for (int layer = 0; layer < input.size(); ++layer) {
      const GraphLayer& node = input.graph.layers[at(layer)];
      const auto [forward, gradient] = transfer_times(layer, options);
      add_transfer(forward, layer, node.consumers);
      add_transfer(gradient, layer, node.producers);
    }
    clear();
  }

  void clear() override {
    inside_.assign(transfers_.size(), {});
    compute_ = transfer_ = bytes_ = 0;
  }

  void add(int layer) override {
    compute_ += input_.compute(layer);
    bytes_ += layer_bytes(input_, layer);
    for (const int one : owned_[at(layer)]) change(one, [](Ends& ends) { ends.producer = true; });
    for (const int one : read_[at(layer)]) change(one, [](Ends& ends) { ++ends.readers; });
  }

  double load() const override { return bytes_ > limit_ ? kInfinity : compute_ + transfer_; }

 private:
  struct Ends {
    bool producer = false;
    int readers = 0;
  };

  /// Of what the layer sends to its consumers, and to its producers.
  std::pair<double, double> transfer_times(int layer, const PeerOptions& options) const {
    const LayerPoint& point = input_.profile.layers[at(layer)].points.front();
    if (point.transfer) {
      return {point.transfer->count(), point.gradient_transfer.value_or(Seconds()).count()};
    }
    const double bytes = 2.0 * static_cast<double>(input_.prices[at(layer)].output);  // and its gradient
    return {bytes / options.levels.front().bandwidth.value, 0};
  }

  void add_transfer(double seconds, int owner, const std::vector<int>& readers) {
    if (seconds <= 0 || readers.empty()) return;
    const int index = static_cast<int>(transfers_.size());
    transfers_.push_back({seconds, static_cast<int>(readers.size())});
    owned_[at(owner)].push_back(index);
    for (const int reader : readers) read_[at(reader)].push_back(index);
  }

  bool crosses(int one) const {
    const Ends& ends = inside_[at(one)];
    return ends.producer ? ends.readers < transfers_[at(one)].readers : ends.readers > 0;
  }

  template <class Edit>
  void change(int one, Edit edit) {
    const bool before = crosses(one);
    edit(inside_[at(one)]);
    const bool after = crosses(one);
    if (after && !before) transfer_ += transfers_[at(one)].seconds;
    if (before && !after) transfer_ -= transfers_[at(one)].seconds;
  }

  const PeerInput& input_;
  double limit_;
  std::vector<Transfer> transfers_;
  std::vector<std::vector<int>> owned_, read_;  ///< transfers by layer
  std::vector<Ends> inside_;
  double compute_ = 0, transfer_ = 0, bytes_ = 0;
};

/// The partition whose fullest device is emptiest says how far the limit is off.
Infeasible does_not_fit(const PeerInput& input, const SearchedSets& searched, int devices, double limit) {
  BytesPrice bytes(input);
  const SetPlan attempt = search_sets(searched, input.size(), bytes, devices);
  Infeasible none;
  for (std::size_t s = 0; s < attempt.stages.size(); ++s) {
    bytes.clear();
    for (const int layer : attempt.stages[s]) bytes.add(layer);
    if (bytes.load() < attempt.value) continue;
    none.stage = static_cast<int>(s);
    none.device = DeviceId{static_cast<int>(s)};
    none.layers = names_of(input, attempt.stages[s]);
  }
  none.smallest_limit = Bytes(static_cast<std::int64_t>(attempt.value));
  none.short_by = Bytes(static_cast<std::int64_t>(attempt.value - limit));
  none.reason = "does not fit " + std::to_string(devices) + " devices of " +
                std::to_string(static_cast<std::int64_t>(limit)) +
                " bytes: even the best split leaves device " + std::to_string(none.stage.value_or(0)) + " " +
                std::to_string(none.short_by.value) + " bytes short";
  none.remedy = "--memory-limit " + std::to_string(none.smallest_limit->value);
  return none;
}

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

std::variant<PeerPlan, Infeasible> plan_dnn_partitioning(const PeerInput& input, const PeerOptions& options) {
  const int devices = options.levels.front().devices;
  const SearchedSets searched = searched_sets(input);
  const double limit = input.memory_limit(options);
  LoadPrice price(input, options, limit);
  const SetPlan found = search_sets(searched, input.size(), price, devices);
  if (found.stages.empty()) return does_not_fit(input, searched, devices, limit);
  PeerPlan plan = empty_plan(input, options);
  for (const std::vector<int>& stage : found.stages) {
    double compute = 0;
    for (const int layer : stage) compute += input.compute(layer);
    plan.stages.push_back({names_of(input, stage), 1, Seconds(compute)});
  }
  plan.objective = Seconds(found.value);
  const Seconds spread(input.total_compute() / devices);
  plan.lower_bound = searched.every_order ? plan.objective : std::min(spread, plan.objective);
  plan.search = searched.words;
  return plan;
}

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
