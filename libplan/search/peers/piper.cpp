#include "libplan/search/peers/piper.h"

#include <algorithm>

#include "libplan/cost/covering_knapsack.h"
#include "libplan/search/peers/set_search.h"

namespace pp::plan {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::size_t at(int i) { return static_cast<std::size_t>(i); }

struct Edge {
  int other = 0;
  double bytes = 0;
};

/// A layer in the model's terms.
struct PiperCosts {
  PiperVariant plain;
  std::optional<PiperVariant> recompute;
  std::vector<Edge> edges;  ///< to and from both kinds of neighbours
};

PiperCosts assumed_costs(const PeerInput& input, int layer) {
  const LayerPrice& price = input.prices[at(layer)];
  const GraphLayer& node = input.graph.layers[at(layer)];
  const Seconds time(input.compute(layer));
  const Bytes fixed(2 * node.parameter_bytes + node.buffer_bytes);
  std::int64_t read = 0;
  for (const int producer : node.producers) read += input.prices[at(producer)].output;
  PiperCosts costs{{time, Bytes(price.saved), fixed}, std::nullopt, {}};
  if (read < price.saved) costs.recompute = PiperVariant{time + Seconds(price.forward), Bytes(read), fixed};
  return costs;
}

/// What moving one edge costs, in bytes.
double edge_bytes(const PeerInput& input, int producer, int consumer) {
  const LayerProfile& reader = input.profile.layers[at(consumer)];
  if (!reader.piper) return static_cast<double>(input.prices[at(producer)].output);
  const std::string& name = input.graph.layers[at(producer)].name;
  const auto found = reader.piper->incoming.find(name);
  if (found == reader.piper->incoming.end()) {
    throw Error(ErrorKind::data, "layer " + reader.name +
                                     ": its piper costs do not list what comes from layer " + name +
                                     "; import the profile again");
  }
  return static_cast<double>(found->second.value);
}

std::vector<PiperCosts> costs_of(const PeerInput& input) {
  std::vector<PiperCosts> costs;
  for (int layer = 0; layer < input.size(); ++layer) {
    const std::optional<PiperLayer>& given = input.profile.layers[at(layer)].piper;
    costs.push_back(given ? PiperCosts{given->plain, given->recompute, {}} : assumed_costs(input, layer));
  }
  for (int layer = 0; layer < input.size(); ++layer) {
    for (const int producer : input.graph.layers[at(layer)].producers) {
      const double bytes = edge_bytes(input, producer, layer);
      costs[at(layer)].edges.push_back({producer, bytes});
      costs[at(producer)].edges.push_back({layer, bytes});
    }
  }
  return costs;
}

class PiperPrice : public StagePrice {
 public:
  PiperPrice(const PeerInput& input, const PeerOptions& options)
      : input_(input),
        options_(options),
        costs_(costs_of(input)),
        bandwidth_(options.levels.front().bandwidth.value),
        limit_(input.memory_limit(options)),
        inside_(at(input.size())) {}

  void clear() override {
    for (const int layer : layers_) inside_[at(layer)] = false;
    layers_.clear();
    seconds_ = crossing_ = weights_ = saved_ = fixed_ = 0;
  }

  void add(int layer) override {
    layers_.push_back(layer);
    inside_[at(layer)] = true;
    const PiperCosts& costs = costs_[at(layer)];
    seconds_ += costs.plain.time.count();
    saved_ += static_cast<double>(costs.plain.saved.value);
    fixed_ += static_cast<double>(costs.plain.fixed.value);
    weights_ += static_cast<double>(input_.graph.layers[at(layer)].parameter_bytes);
    for (const Edge& edge : costs.edges) crossing_ += inside_[at(edge.other)] ? -edge.bytes : edge.bytes;
  }

  double load(int replicas, int later) const override {
    const int batch = options_.micro_batches_in_batch;
    if (batch % replicas != 0) return kInfinity;
    const double shared = seconds_ + recomputed(replicas, later) + 2 * crossing_ / bandwidth_;
    return shared / replicas + 4.0 * (replicas - 1) / replicas * weights_ / (batch * bandwidth_);
  }

  /// Bytes with everything recomputed that helps.
  double least_memory(int replicas, int later) const {
    double bytes = in_flight(replicas, later) * saved_ + fixed_;
    for (const CoverItem& item : items(replicas, later)) bytes -= item.bytes;
    return bytes;
  }

 private:
  static double in_flight(int replicas, int later) { return (later + replicas + replicas - 1) / replicas; }

  /// Seconds of the layers that have to be recomputed; infinity when the stage does not fit.
  double recomputed(int replicas, int later) const {
    const double excess = in_flight(replicas, later) * saved_ + fixed_ - limit_;
    if (excess <= 0) return 0;
    const bool exact = options_.strategy == PeerStrategy::automatic;
    return exact ? cover_exactly(items(replicas, later), excess).seconds
                 : cover_greedily(items(replicas, later), excess).seconds;
  }

  std::vector<CoverItem> items(int replicas, int later) const {
    std::vector<CoverItem> items;
    for (const int layer : layers_) {
      const PiperCosts& costs = costs_[at(layer)];
      if (!costs.recompute) continue;
      const auto saved = static_cast<double>((costs.plain.saved - costs.recompute->saved).value);
      const auto fixed = static_cast<double>((costs.plain.fixed - costs.recompute->fixed).value);
      const double bytes = in_flight(replicas, later) * saved + fixed;
      if (bytes > 0) items.push_back({(costs.recompute->time - costs.plain.time).count(), bytes});
    }
    return items;
  }

  const PeerInput& input_;
  const PeerOptions& options_;
  std::vector<PiperCosts> costs_;
  double bandwidth_;
  double limit_;
  std::vector<char> inside_;
  std::vector<int> layers_;
  double seconds_ = 0, crossing_ = 0, weights_ = 0, saved_ = 0, fixed_ = 0;
};

/// The same stages by the memory that they cannot do without.
class LeastMemory : public StagePrice {
 public:
  LeastMemory(PiperPrice& price, int batch) : price_(price), batch_(batch) {}
  void clear() override { price_.clear(); }
  void add(int layer) override { price_.add(layer); }
  double load(int replicas, int later) const override {
    return batch_ % replicas == 0 ? price_.least_memory(replicas, later) : kInfinity;
  }

 private:
  PiperPrice& price_;
  int batch_;
};

Infeasible does_not_fit(const PeerInput& input, PiperPrice& price, const PeerOptions& options,
                        const SetLimits& limits) {
  LeastMemory memory(price, options.micro_batches_in_batch);
  const double needed = search_sets(input, memory, limits).value;
  const double limit = input.memory_limit(options);
  Infeasible none;
  none.smallest_limit = Bytes(static_cast<std::int64_t>(needed));
  none.short_by = Bytes(static_cast<std::int64_t>(needed - limit));
  none.reason = "does not fit " + std::to_string(limits.devices) + " devices of " +
                std::to_string(static_cast<std::int64_t>(limit)) +
                " bytes, with every layer recomputed: " + std::to_string(none.short_by.value) + " bytes short";
  none.remedy = "--memory-limit " + std::to_string(none.smallest_limit->value);
  return none;
}

}  // namespace

std::variant<PeerPlan, Infeasible> plan_piper(const PeerInput& input, const PeerOptions& options) {
  const int devices = std::min(options.levels.front().devices, options.micro_batches_in_batch);
  const SetLimits limits{.devices = devices, .max_replicas = devices};
  PiperPrice price(input, options);
  const SetPlan found = search_sets(input, price, limits);
  if (found.stages.empty()) return does_not_fit(input, price, options, limits);
  PeerPlan plan = empty_plan(input, options);
  for (const SetStage& stage : found.stages) {
    double compute = 0;
    for (const int layer : stage.layers) compute += input.compute(layer);
    plan.stages.push_back({names_of(input, stage.layers), stage.replicas, Seconds(compute / stage.replicas)});
  }
  plan.objective = Seconds(found.value);
  const Seconds spread(input.total_compute() / devices);
  const bool exact = found.every_order && options.strategy == PeerStrategy::automatic;
  plan.lower_bound = exact ? plan.objective : std::min(spread, plan.objective);
  plan.search = found.search;
  return plan;
}

}  // namespace pp::plan
