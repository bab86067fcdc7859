#include "libplan/peers/pipedream.h"

#include <algorithm>
#include <memory>

#include "libplan/cost/constants.h"
#include "libprofile/core/index.h"

namespace pp::plan {

namespace {

/// The levels of one layer order, innermost first.
class Hierarchy {
 public:
  Hierarchy(const Chain& chain, const PeerOptions& options, double bound) : layers_(chain.size()) {
    for (std::size_t level = 0; level < options.levels.size(); ++level) {
      const bool outermost = level + 1 == options.levels.size();
      const PipedreamLevel* inner = levels_.empty() ? nullptr : levels_.back().get();
      levels_.push_back(std::make_unique<PipedreamLevel>(chain, options, level, inner, !outermost,
                                                         outermost ? bound : kInfinity));
    }
  }

  double value() const { return outermost().value(0, layers_); }

  Partition partition() const {
    Partition stages;
    outermost().collect(0, layers_, outermost().machines_for(0, layers_), 1, stages);
    return stages;
  }

  /// The least a layer costs by itself, on any number of machines.
  double alone(int layer, int machines) const {
    double least = kInfinity;
    for (int m = 1; m <= machines; ++m) least = std::min(least, outermost().cost().alone(layer, layer + 1, m));
    return least;
  }

 private:
  const PipedreamLevel& outermost() const { return *levels_.back(); }

  int layers_;
  std::vector<std::unique_ptr<PipedreamLevel>> levels_;
};

/// Holds whatever the order of the layers: the work spread over all devices, and the heaviest layer by itself.
double order_free_bound(const Hierarchy& levels, const Chain& chain, const PeerOptions& options) {
  double bound = chain.compute(0, chain.size()) / device_count(options);
  for (int layer = 0; layer < chain.size(); ++layer) {
    bound = std::max(bound, levels.alone(layer, options.levels.back().devices));
  }
  return bound;
}

std::vector<PeerStage> stages_of(const PeerInput& input, const LinearOrder& order, const Chain& chain,
                                 const Partition& partition) {
  std::vector<PeerStage> stages;
  for (const auto& [begin, end, replicas] : partition) {
    const std::vector<int> layers(order.layers.begin() + begin, order.layers.begin() + end);
    stages.push_back({names_of(input, layers), replicas, Seconds(chain.compute(begin, end) / replicas)});
  }
  return stages;
}

Infeasible does_not_fit(const PeerOptions& options) {
  Infeasible none;
  none.reason = "does not fit: no partition over " + std::to_string(device_count(options)) +
                " machines passes the memory test of " + std::string(name_of(options.model)) + " with " +
                std::to_string(options.memory_limit.value_or(Bytes(0)).value) + " bytes";
  return none;
}

}  // namespace

std::variant<PeerPlan, Infeasible> plan_pipedream(const PeerInput& input, const PeerOptions& options) {
  PeerPlan plan = empty_plan(input, options);
  double best = kInfinity;
  double bound = 0;
  for (const LinearOrder& order : input.orders) {
    const Chain chain = chain_of(input, order);
    const Hierarchy levels(chain, options, best);
    if (bound == 0) bound = order_free_bound(levels, chain, options);
    if (!(levels.value() < best)) continue;
    best = levels.value();
    plan.stages = stages_of(input, order, chain, levels.partition());
  }
  if (plan.stages.empty()) return does_not_fit(options);
  const bool chain = input.orders.size() == 1;
  plan.objective = Seconds(best);
  plan.lower_bound = Seconds(chain ? best : std::min(bound, best));
  plan.search =
      "exact over " + std::to_string(input.orders.size()) + (chain ? " layer order" : " layer orders");
  return plan;
}

namespace {}  // namespace

PipedreamCost::PipedreamCost(const Chain& chain, const PeerOptions& options, std::size_t level,
                             const PipedreamLevel* inner)
    : chain_(chain),
      options_(options),
      layers_(chain.size()),
      machines_(options.levels[level].devices),
      bandwidth_(options.levels[level].bandwidth.value) {
  if (inner == nullptr) return;
  if (options.model == PeerModel::pipedream_code) group_ = inner->machines();
  nested_.resize(at(layers_ + 1) * at(layers_));
  for (int begin = 0; begin < layers_; ++begin) {
    for (int end = begin + 1; end <= layers_; ++end) nested_[interval(begin, end)] = inner->value(begin, end);
  }
}

std::size_t PipedreamCost::interval(int begin, int end) const { return at(end) * at(layers_) + at(begin); }

double PipedreamCost::compute(int begin, int end) const {
  return nested_.empty() ? chain_.compute(begin, end) : nested_[interval(begin, end)];
}

double PipedreamCost::reduce(int begin, int end, int machines) const {
  const auto weights = static_cast<double>(chain_.between(begin, end).parameters);
  if (options_.model == PeerModel::pipedream_paper) return 2.0 * (machines - 1) * weights / bandwidth_;
  return 4.0 * (machines - 1) * weights / (bandwidth_ * machines);
}

double PipedreamCost::spread(double compute, double reduce, int machines) const {
  const bool paper = options_.model == PeerModel::pipedream_paper;
  return (paper ? std::max(compute, reduce) : compute + reduce) / machines;
}

/// Code: both boundaries over the replicas of this stage, which so pays for the senders too; the first stage of
/// a pipeline is not asked. Paper: the boundary in front, whatever the replicas.
double PipedreamCost::cuts(int begin, int end, int machines) const {
  if (!options_.activation_compression) return 0;
  const double rate = bandwidth_ * *options_.activation_compression;
  const double in = 2 * chain_.cut_activation[at(begin)];
  if (options_.model == PeerModel::pipedream_paper) return in / rate;
  const double out = end < layers_ ? 2 * chain_.cut_activation[at(end)] : 0;
  return std::max(in, out) / (rate * machines);
}

double PipedreamCost::alone(int begin, int end, int machines) const {
  return spread(compute(begin, end), reduce(begin, end, machines) / group_, machines);
}

double PipedreamCost::whole(int begin, int end, int machines) const {
  return least_used(begin, end, machines) > machines ? kInfinity : alone(begin, end, machines);
}

double PipedreamCost::last(int begin, int end, int machines) const {
  const double stage = spread(compute(begin, end), reduce(begin, end, machines), machines);
  return std::max(stage, cuts(begin, end, machines));
}

int PipedreamCost::least_used(int begin, int end, int machines) const {
  if (!options_.memory_limit) return machines;
  const auto limit = static_cast<double>(options_.memory_limit->value);
  const double bytes =
      static_cast<double>(chain_.between(begin, end).saved + chain_.between(begin, end).parameters);
  int used = machines;
  while ((machines_ - used + machines - 1) / machines * bytes > limit) ++used;  // no copy, no test, at the end
  return used;
}

PipedreamLevel::PipedreamLevel(const Chain& chain, const PeerOptions& options, std::size_t level,
                               const PipedreamLevel* inner, bool all_starts, double bound)
    : options_(options),
      inner_(inner),
      machines_(options.levels[level].devices),
      cost_(chain, options, level, inner),
      table_({chain.size(), machines_, all_starts, bound}, cost_) {}

int PipedreamLevel::machines_for(int begin, int end) const {
  if (options_.machines == MachinesRule::exactly) return machines_;
  int best = 1;
  for (int m = 2; m <= machines_; ++m) {
    if (value(begin, end, m) < value(begin, end, best)) best = m;
  }
  return best;
}

void PipedreamLevel::collect(int begin, int end, int machines, int copies, Partition& stages) const {
  const double target = value(begin, end, machines);
  const auto descend = [&](int first, int last, int count) {
    if (inner_ != nullptr) {
      inner_->collect(first, last, inner_->machines_for(first, last), copies * count, stages);
    } else {
      stages.push_back({first, last, copies * count});
    }
  };
  if (cost_.whole(begin, end, machines) <= target) return descend(begin, end, machines);
  for (int split = begin + 1; split < end; ++split) {
    for (int q = 1; q < machines; ++q) {
      if (std::max(value(begin, split, machines - q), cost_.last(split, end, q)) > target) continue;
      if (cost_.least_used(split, end, q) > machines) continue;
      collect(begin, split, machines - q, copies, stages);
      return descend(split, end, q);
    }
  }
}

}  // namespace pp::plan
