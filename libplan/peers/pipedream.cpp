#include "libplan/peers/pipedream.h"

#include <algorithm>
#include <memory>

#include "libplan/cost/constants.h"
#include "libplan/peers/pipedream_level.h"

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

}  // namespace pp::plan
