#include "libplan/peers/piper_stage.h"

#include <algorithm>
#include <limits>
#include <set>
#include <tuple>

#include "libplan/cost/constants.h"
#include "libplan/cost/covering_knapsack.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

using Edges = std::map<std::string, Bytes>;

PiperCosts assumed_costs(const PeerInput& input, int layer) {
  const LayerPrice& price = input.prices[at(layer)];
  const GraphLayer& node = input.graph.layers[at(layer)];
  const Seconds time(input.compute(layer));
  const Bytes fixed(2 * node.parameter_bytes + node.buffer_bytes);
  std::int64_t read = 0;
  for (const int producer : node.producers) read += input.prices[at(producer)].output;
  PiperCosts costs{{time, Bytes(price.saved), fixed}, std::nullopt, 0, {}};
  if (read < price.saved) costs.recompute = PiperVariant{time + Seconds(price.forward), Bytes(read), fixed};
  return costs;
}

const PiperShare* share_of(const LayerProfile& layer, int degree) {
  if (!layer.piper) return nullptr;
  const auto found = std::ranges::find(layer.piper->tensor, degree, &PiperShare::degree);
  return found == layer.piper->tensor.end() ? nullptr : &*found;
}

std::optional<PiperCosts> costs_of(const PeerInput& input, int layer, int degree) {
  const LayerProfile& profile = input.profile.layers[at(layer)];
  const auto weights = static_cast<double>(input.graph.layers[at(layer)].parameter_bytes);
  if (degree == 1) {
    PiperCosts costs = profile.piper ? PiperCosts{profile.piper->plain, profile.piper->recompute, 0, {}}
                                     : assumed_costs(input, layer);
    costs.weights = weights;
    return costs;
  }
  const PiperShare* share = share_of(profile, degree);
  if (share == nullptr) return std::nullopt;
  return PiperCosts{share->plain, share->recompute, static_cast<double>(share->parameters.value), {}};
}

[[noreturn]] void refuse_edge(const std::string& layer, const std::string& direction,
                              const std::string& other) {
  throw Error(ErrorKind::data, "layer " + layer + ": its piper costs do not list what " + direction +
                                   " layer " + other + "; import the profile again");
}

double incoming(const PeerInput& input, int producer, int reader, int degree) {
  const LayerProfile& profile = input.profile.layers[at(reader)];
  if (!profile.piper) return static_cast<double>(input.prices[at(producer)].output);
  const PiperShare* share = share_of(profile, degree);
  const Edges& edges = share != nullptr ? share->incoming : profile.piper->incoming;
  const auto found = edges.find(input.graph.layers[at(producer)].name);
  if (found == edges.end()) refuse_edge(profile.name, "comes from", input.graph.layers[at(producer)].name);
  return static_cast<double>(found->second.value);
}

double outgoing(const PeerInput& input, int producer, int reader, int degree) {
  const LayerProfile& profile = input.profile.layers[at(producer)];
  const PiperShare* share = share_of(profile, degree);
  const std::string& name = input.graph.layers[at(reader)].name;
  if (share != nullptr) {
    const auto found = share->outgoing.find(name);
    if (found == share->outgoing.end()) refuse_edge(profile.name, "goes to", name);
    return static_cast<double>(found->second.value);
  }
  if (profile.piper) {
    const auto found = profile.piper->outgoing.find(name);
    if (found != profile.piper->outgoing.end()) return static_cast<double>(found->second.value);
  }
  return incoming(input, producer, reader, 1);
}

}  // namespace

PiperDegree::PiperDegree(const PeerInput& input, int tensor) : degree(tensor) {
  for (int layer = 0; layer < input.size(); ++layer) costs_.push_back(costs_of(input, layer, degree));
  for (int layer = 0; layer < input.size(); ++layer) {
    for (const int producer : input.graph.layers[at(layer)].producers) {
      if (costs_[at(layer)])
        costs_[at(layer)]->edges.push_back({producer, incoming(input, producer, layer, degree)});
      if (costs_[at(producer)])
        costs_[at(producer)]->edges.push_back({layer, outgoing(input, producer, layer, degree)});
    }
  }
}

const std::vector<PiperAgain>& PiperDegree::again(int in_flight) const {
  const auto [place, fresh] = again_.try_emplace(in_flight);
  std::vector<PiperAgain>& items = place->second;
  if (!fresh) return items;
  for (int layer = 0; layer < static_cast<int>(costs_.size()); ++layer) {
    if (!of(layer) || !of(layer)->recompute) continue;
    const PiperVariant& plain = of(layer)->plain;
    const PiperVariant& other = *of(layer)->recompute;
    const double bytes = in_flight * static_cast<double>((plain.saved - other.saved).value) +
                         static_cast<double>((plain.fixed - other.fixed).value);
    if (bytes > 0) items.push_back({layer, (other.time - plain.time).count(), bytes});
  }
  std::ranges::sort(items, {}, [](const PiperAgain& item) {
    return std::tuple(item.seconds / item.bytes, item.bytes, item.layer);
  });
  return items;
}

std::vector<PiperDegree> piper_degrees(const PeerInput& input) {
  std::set<int> found{1};
  for (const LayerProfile& layer : input.profile.layers) {
    if (!layer.piper) continue;
    for (const PiperShare& share : layer.piper->tensor) found.insert(share.degree);
  }
  std::vector<PiperDegree> degrees;
  for (const int degree : found) degrees.emplace_back(input, degree);
  return degrees;
}

PiperStage::PiperStage(const PeerInput& input, const PeerOptions& options)
    : options_(options),
      bandwidth_(options.levels.front().bandwidth.value),
      limit_(input.memory_limit(options)),
      inside_(at(input.size())) {}

bool PiperStage::take(const PiperDegree& degree, const std::vector<int>& layers) {
  for (const int layer : layers_) inside_[at(layer)] = 0;
  degree_ = &degree;
  layers_ = layers;
  seconds_ = crossing_ = weights_ = saved_ = fixed_ = 0;
  for (const int layer : layers_) inside_[at(layer)] = 1;
  for (const int layer : layers_) {
    const std::optional<PiperCosts>& costs = degree.of(layer);
    if (!costs) return false;
    seconds_ += costs->plain.time.count();
    saved_ += static_cast<double>(costs->plain.saved.value);
    fixed_ += static_cast<double>(costs->plain.fixed.value);
    weights_ += costs->weights;
    for (const PiperEdge& edge : costs->edges) crossing_ += inside_[at(edge.other)] != 0 ? 0 : edge.bytes;
  }
  return true;
}

double PiperStage::shared(double again, int replicas) const {
  const double batch = options_.micro_batches_in_batch;
  return (seconds_ + again + 2 * crossing_ / bandwidth_) / replicas +
         4.0 * (replicas - 1) / replicas * weights_ / (batch * bandwidth_);
}

double PiperStage::load(int replicas, int in_flight, std::optional<double> limit) const {
  double missing = excess(in_flight);
  if (missing <= 0) return shared(0, replicas);
  const bool exact = options_.strategy == PeerStrategy::automatic;
  if (limit && shared(0, replicas) > *limit) return shared(0, replicas);
  double greedy = 0;   // whole layers, cheapest bytes first
  double relaxed = 0;  // the last one in part: no choice takes less
  for (const PiperAgain& item : degree_->again(in_flight)) {
    if (missing <= 0) break;
    if (inside_[at(item.layer)] == 0) continue;
    relaxed = greedy + std::min(1.0, missing / item.bytes) * item.seconds;
    greedy += item.seconds;
    missing -= item.bytes;
  }
  if (missing > 0) return kInfinity;
  if (!exact || (limit && shared(greedy, replicas) <= *limit)) return shared(greedy, replicas);
  // A hair less than the relaxed sum: it rounds differently.
  const double bound = shared(relaxed * (1 - 1e-12), replicas);
  return limit && bound > *limit ? bound : shared(exactly(in_flight), replicas);
}

double PiperStage::exactly(int in_flight) const {
  std::vector<CoverItem> items;
  for (const PiperAgain& item : degree_->again(in_flight)) {
    if (inside_[at(item.layer)] != 0) items.push_back({item.seconds, item.bytes});
  }
  return cover_exactly(items, excess(in_flight)).seconds;
}

double PiperStage::least_memory(int in_flight) const {
  double bytes = in_flight * saved_ + fixed_;
  for (const PiperAgain& item : degree_->again(in_flight))
    bytes -= inside_[at(item.layer)] != 0 ? item.bytes : 0;
  return bytes;
}

}  // namespace pp::plan
