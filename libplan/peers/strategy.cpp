#include "libplan/peers/strategy.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "libplan/cost/priced_model.h"
#include "libplan/peers/peer.h"
#include "libplan/request/request.h"
#include "libplan/search/exact/bottleneck.h"
#include "libprofile/core/index.h"

namespace pp::plan {

namespace {

std::string name(Strategy strategy) { return std::string(name_of(strategy)); }

int device_count(const Cluster& cluster) { return static_cast<int>(cluster.devices.size()); }

/// The most micro-batches that the request allows.
int most_micro_batches(const Profile& profile, const PlanRequest& request) {
  int most = 1;
  for (const BatchOption& batch : batch_options(profile, request, *requested_schedules(request).front()))
    most = std::max(most, batch.micro_batches);
  return most;
}

double total_flops(const Profile& profile) {
  double sum = 0;
  for (const LayerProfile& layer : profile.layers) sum += layer.forward_flops_per_sample.value;
  return sum;
}

/// One number per layer, at the profile's first micro-batch size.
std::vector<double> balance_costs(const Profile& profile, const PlanRequest& request, Strategy strategy) {
  const int size = static_cast<int>(profile.micro_batch_sizes.front());
  const PricedModel model = price_model(profile, std::vector<int>{size}, {});
  // Weights, gradients and state; torchgpipe counts no momentum for sgd.
  const double scale = request.optimizer == OptimizerName::sgd ? 2 : 2 + state_ratio_of(request.optimizer);
  const bool flops = total_flops(profile) > 0;
  std::vector<double> costs;
  for (std::size_t i = 0; i < profile.layers.size(); ++i) {
    const LayerPrice& price = model.layers[i];
    const LayerProfile& layer = profile.layers[i];
    switch (strategy) {
      case Strategy::balance_by_size:
      case Strategy::block_by_size:
        costs.push_back(static_cast<double>(price.output) +
                        scale * static_cast<double>(layer.parameters.value));
        break;
      case Strategy::lingvo:
        costs.push_back(flops ? layer.forward_flops_per_sample.value : price.forward);
        break;
      default: costs.push_back(price.forward + price.backward);
    }
  }
  return costs;
}

std::vector<int> block_lengths(std::span<const double> costs, int blocks, Strategy strategy) {
  switch (strategy) {
    case Strategy::block_by_time:
    case Strategy::block_by_size: return block_partition(costs, blocks);
    case Strategy::lingvo: return lingvo_partition(costs, blocks);
    default: return balance_exactly(costs, blocks);
  }
}

/// Whether what the strategy fixed keeps to what the request fixed.
bool admits(const PlanRequest& request, const PlanRequest& narrowed) {
  const int asked = requested_stages(request);
  const int stages = requested_stages(narrowed);
  if (!request.cuts.empty() && request.cuts != narrowed.cuts) return false;
  if (!request.replicas.empty() && request.replicas != narrowed.replicas) return false;
  if (!request.layer_order.empty() && request.layer_order != narrowed.layer_order) return false;
  if (asked != 0 && stages != asked) return false;
  if (request.max_stages && stages > *request.max_stages) return false;
  return request.max_replicas == 0 ||
         std::ranges::all_of(narrowed.replicas, [&](int replicas) { return replicas <= request.max_replicas; });
}

PlanRequest balanced(const Profile& profile, const Cluster& cluster, PlanRequest request, Strategy strategy) {
  const int layers = static_cast<int>(profile.layers.size());
  const int stages = request.stages.value_or(std::min(device_count(cluster), layers));
  if (stages > layers) {
    throw Error(ErrorKind::usage, "stages = " + std::to_string(stages) + " exceeds the number of layers, " +
                                      std::to_string(layers));
  }
  const std::vector<int> lengths = block_lengths(balance_costs(profile, request, strategy), stages, strategy);
  if (lengths.empty()) {
    throw Error(ErrorKind::usage, name(strategy) + ": its rule does not end on these costs with " +
                                      std::to_string(stages) + " stages; use balance-by-time, or fewer stages");
  }
  request.cuts.clear();
  int end = 0;
  for (std::size_t block = 0; block < lengths.size(); ++block) {
    if (lengths[block] == 0) {
      throw Error(ErrorKind::usage, name(strategy) + ": partition " + std::to_string(block) + " of " +
                                        std::to_string(stages) +
                                        " has no layers; use balance-by-time, or fewer stages");
    }
    end += lengths[block];
    if (end < layers) request.cuts.push_back(end);
  }
  request.replicas.assign(lengths.size(), 1);
  return request;
}

/// The cluster as the peers describe machines: fan-out of each level; of unequal nodes, all at the outermost.
std::vector<PeerLevel> peer_levels(const Cluster& cluster, PeerModel model) {
  std::vector<PeerLevel> levels;
  int inner = 1;
  for (const Level& level : cluster.levels) {
    const int devices = std::min(level.devices, device_count(cluster));
    levels.push_back({devices / inner, level.bandwidth});
    inner = devices;
  }
  if (model == PeerModel::piper || model == PeerModel::dnn_partitioning || has_empty_slots(cluster))
    return {{device_count(cluster), cluster.levels.back().bandwidth}};
  if (model == PeerModel::dapple && levels.size() > 2) {
    for (; levels.size() > 2; levels.pop_back()) levels[1].devices *= levels.back().devices;
  }
  return levels;
}

PlanRequest as_peer(const Profile& profile, const Cluster& cluster, PlanRequest request, PeerModel model) {
  PeerOptions options;
  options.model = model;
  options.levels = peer_levels(cluster, model);
  options.memory_limit = request.memory_limit;
  options.mini_batch = request.mini_batch;
  options.micro_batches_in_batch = most_micro_batches(profile, request);
  const auto result = plan_as_peer(profile, options, request.force_units);
  if (const auto* none = std::get_if<Infeasible>(&result)) {
    throw Error(ErrorKind::usage, std::string(name_of(model)) + ": " + none->reason);
  }
  const PeerPlan& plan = std::get<PeerPlan>(result);
  std::map<std::string, int> positions;
  for (const LayerProfile& layer : profile.layers)
    positions.emplace(layer.name, static_cast<int>(positions.size()));
  request.replicas.clear();
  request.layer_order.clear();
  for (const PeerStage& stage : plan.stages) {
    request.replicas.push_back(stage.replicas);
    for (const std::string& layer : stage.layers) request.layer_order.push_back(positions.at(layer));
  }
  request.cuts = cuts_of(plan);
  request.stages = static_cast<int>(plan.stages.size());
  return request;
}

/// What the strategy leaves of the request, whether it keeps to it or not.
PlanRequest chosen(const Profile& profile, const Cluster& cluster, const PlanRequest& request,
                   Strategy strategy) {
  PlanRequest result = request;
  switch (strategy) {
    case Strategy::automatic: return result;
    case Strategy::manual:
      if (request.cuts.empty()) throw Error(ErrorKind::usage, "strategy manual needs the cuts; add --cuts K,K");
      return result;
    case Strategy::data_parallel:
      result.stages = 1;
      result.replicas = {std::min(device_count(cluster), most_micro_batches(profile, request))};
      return result;
    case Strategy::straight: result.max_replicas = 1; return result;
    case Strategy::pipedream_code: return as_peer(profile, cluster, result, PeerModel::pipedream_code);
    case Strategy::pipedream_paper: return as_peer(profile, cluster, result, PeerModel::pipedream_paper);
    case Strategy::dnn_partitioning: return as_peer(profile, cluster, result, PeerModel::dnn_partitioning);
    case Strategy::piper: return as_peer(profile, cluster, result, PeerModel::piper);
    case Strategy::dapple: return as_peer(profile, cluster, result, PeerModel::dapple);
    default: return balanced(profile, cluster, result, strategy);
  }
}

std::vector<double> prefix_sums(std::span<const double> costs) {
  std::vector<double> sums{0};
  for (const double cost : costs) sums.push_back(sums.back() + cost);
  return sums;
}

/// A stage costs what its layers do, cuts are free.
class SumCost : public StageCost {
 public:
  explicit SumCost(std::span<const double> costs) : sums_(prefix_sums(costs)) {}
  double stage(int begin, int end, DeviceSpan) const override { return sums_[at(end)] - sums_[at(begin)]; }
  double cut(int, DeviceSpan, CutSide) const override { return 0; }
  bool fits(int, int, DeviceSpan) const override { return true; }

 private:
  std::vector<double> sums_;
};

/// Blocks of a sequence by their ends; what Barany and Grinberg's rule looks at and changes.
class Blocks {
 public:
  Blocks(std::vector<double> costs, int blocks) : costs_(std::move(costs)) {
    for (int b = 0; b < blocks; ++b) ends_.push_back((b + 1) * (layers() / blocks));
    ends_.back() = layers();
  }

  int layers() const { return static_cast<int>(costs_.size()); }
  int count() const { return static_cast<int>(ends_.size()); }
  /// Added up anew each time: differences of prefix sums would not be exact enough for the rule to end.
  double size(int block) const {
    const int end = std::min(ends_[at(block)], layers());
    double sum = 0;
    for (int i = std::max(0, begin(block)); i < end; ++i) sum += costs_[at(i)];
    return sum;
  }
  int begin(int block) const { return block == 0 ? 0 : ends_[at(block - 1)]; }
  /// The rule can leave a block that begins behind its end; it is empty, and so is what follows up to there.
  std::vector<int> lengths() const {
    std::vector<int> lengths;
    int done = 0;
    for (const int end : ends_) {
      lengths.push_back(std::max(0, std::min(end, layers()) - done));
      done += lengths.back();
    }
    return lengths;
  }

  /// Ties: the last one.
  int largest() const {
    int best = 0;
    for (int b = 1; b < count(); ++b) best = size(b) >= size(best) ? b : best;
    return best;
  }
  /// Ties: the first one.
  int smallest() const {
    int best = 0;
    for (int b = 1; b < count(); ++b) best = size(b) < size(best) ? b : best;
    return best;
  }

  /// Moves one layer into `to` from its neighbour on the side of `from`; returns that neighbour. Pulling from
  /// an empty one lets it begin behind its end, or an end lie outside of the sequence; it counts as empty.
  int pull(int from, int to) {
    if (from < to) {
      --ends_[at(to - 1)];
      return to - 1;
    }
    ++ends_[at(to)];
    return to + 1;
  }

 private:
  std::vector<double> costs_;
  std::vector<int> ends_;
};

std::vector<double> scaled(std::span<const double> costs) {
  const auto [least, most] = std::minmax_element(costs.begin(), costs.end());
  const double range = *most > *least ? *most - *least : 1;
  std::vector<double> result;
  for (const double cost : costs) result.push_back((cost - *least) / range);
  return result;
}

}  // namespace

PlanRequest narrowed(const Profile& profile, const Cluster& cluster, const PlanRequest& request,
                     Strategy strategy) {
  PlanRequest result = chosen(profile, cluster, request, strategy);
  if (admits(request, result)) return result;
  throw Error(ErrorKind::usage,
              "strategy " + name(strategy) +
                  " does not keep to the stages, cuts or replicas asked for; leave them out, or "
                  "choose another strategy");
}

std::vector<int> balance_exactly(std::span<const double> costs, int blocks) {
  SearchSpace space;
  space.layers = static_cast<int>(costs.size());
  space.devices = space.exact_stages = blocks;
  space.max_replicas = 1;
  std::vector<int> lengths;
  for (const StageRange& stage : search_bottleneck(space, SumCost(costs)).partition)
    lengths.push_back(stage.end - stage.begin);
  return lengths;
}

std::vector<int> block_partition(std::span<const double> costs, int count) {
  constexpr std::size_t kMovesPerLayerAndBlock = 10;
  Blocks blocks(scaled(costs), count);
  int largest = blocks.largest();
  double size = blocks.size(largest);  // as of its choice
  for (std::size_t moves = kMovesPerLayerAndBlock * costs.size() * at(count); moves != 0; --moves) {
    const int smallest = blocks.smallest();
    if (size <= blocks.size(smallest) + 1) return blocks.lengths();
    if (blocks.pull(largest, smallest) != largest) continue;
    largest = blocks.largest();
    size = blocks.size(largest);
  }
  return {};
}

std::vector<int> lingvo_partition(std::span<const double> costs, int blocks) {
  const double total = std::accumulate(costs.begin(), costs.end(), 0.0);
  std::vector<int> lengths(at(blocks), 0);
  double sum = 0;
  for (const double cost : costs) {
    sum += cost;
    const double share = total > 0 ? sum / total : 1;
    ++lengths[at(std::min(static_cast<int>(std::floor(share * blocks)), blocks - 1))];
  }
  return lengths;
}

}  // namespace pp::plan
