#include "libplan/search/peers/set_search.h"

#include <algorithm>

#include "libplan/cost/down_sets.h"

namespace pp::plan {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::size_t kMostSets = 50'000;
constexpr double kMostSteps = 2e9;

std::size_t at(int i) { return static_cast<std::size_t>(i); }

/// What can be finished at a cut: states from nothing (0) to everything. load_between() puts the layers of
/// `end` that `begin` lacks into the price; false: no stage leads there. Calls come with `begin` falling from
/// `end`-1.
class States {
 public:
  virtual ~States() = default;
  virtual int count() const = 0;
  virtual bool load_between(StagePrice& price, int begin, int end) const = 0;
  virtual std::vector<int> between(int begin, int end) const = 0;
};

class Prefixes : public States {
 public:
  explicit Prefixes(const std::vector<int>& order) : order_(order) {}
  int count() const override { return static_cast<int>(order_.size()) + 1; }
  bool load_between(StagePrice& price, int begin, int end) const override {
    if (begin == end - 1) price.clear();
    price.add(order_[at(begin)]);
    return true;
  }
  std::vector<int> between(int begin, int end) const override {
    std::vector<int> layers(order_.begin() + begin, order_.begin() + end);
    std::sort(layers.begin(), layers.end());
    return layers;
  }

 private:
  const std::vector<int>& order_;
};

class DownSets : public States {
 public:
  DownSets(std::vector<LayerSet> sets, int layers) : sets_(std::move(sets)), layers_(layers) {}
  int count() const override { return static_cast<int>(sets_.size()); }
  bool load_between(StagePrice& price, int begin, int end) const override {
    if (!sets_[at(end)].contains(sets_[at(begin)])) return false;
    price.clear();
    for (const int layer : between(begin, end)) price.add(layer);
    return true;
  }
  std::vector<int> between(int begin, int end) const override {
    return layers_between(sets_[at(begin)], sets_[at(end)], layers_);
  }

 private:
  std::vector<LayerSet> sets_;
  int layers_;
};

/// best[state][u]: the least largest load of what is missing in `state`, on exactly u devices.
class BackwardSearch {
 public:
  BackwardSearch(const States& states, StagePrice& price, const SetLimits& limits)
      : states_(states), limits_(limits), best_(at(states.count()) * at(limits.devices + 1)) {
    entry(states.count() - 1, 0).value = 0;
    for (int end = states.count() - 1; end > 0; --end) {
      for (int begin = end - 1; begin >= 0; --begin) {
        if (states.load_between(price, begin, end)) extend(begin, end, price);
      }
    }
  }

  SetPlan result() {
    SetPlan plan;
    int devices = 0;
    for (int used = 1; used <= limits_.devices; ++used) {
      if (entry(0, used).value < plan.value) plan.value = entry(0, devices = used).value;
    }
    if (devices == 0) return plan;
    for (int state = 0; state < states_.count() - 1;) {
      const Entry& chosen = entry(state, devices);
      plan.stages.push_back({states_.between(state, chosen.end), chosen.replicas});
      devices -= chosen.replicas;
      state = chosen.end;
    }
    return plan;
  }

 private:
  struct Entry {
    double value = kInfinity;
    int end = 0;
    int replicas = 0;
  };
  Entry& entry(int state, int devices) { return best_[at(state) * at(limits_.devices + 1) + at(devices)]; }

  void extend(int begin, int end, const StagePrice& price) {
    for (int later = 0; later < limits_.devices; ++later) {
      const double behind = entry(end, later).value;
      if (behind == kInfinity) continue;
      const int most = std::min(limits_.max_replicas, limits_.devices - later);
      for (int replicas = 1; replicas <= most; ++replicas) {
        Entry& target = entry(begin, later + replicas);
        if (behind >= target.value) continue;
        const double value = std::max(behind, price.load(replicas, later));
        if (value < target.value) target = {value, end, replicas};
      }
    }
  }

  const States& states_;
  SetLimits limits_;
  std::vector<Entry> best_;
};

bool affordable(std::size_t sets, int layers) {
  const auto count = static_cast<double>(sets);
  return sets > 0 && count * count / 2 * layers <= kMostSteps;
}

}  // namespace

SetPlan search_sets(const PeerInput& input, StagePrice& price, const SetLimits& limits) {
  std::vector<LayerSet> sets = down_sets(input.graph, kMostSets);
  if (affordable(sets.size(), input.size())) {
    const std::string count = std::to_string(sets.size());
    const DownSets states(std::move(sets), input.size());
    SetPlan plan = BackwardSearch(states, price, limits).result();
    plan.every_order = true;
    plan.search = "exact over all " + count + " down-sets";
    return plan;
  }
  SetPlan best;
  for (const LinearOrder& order : input.orders) {
    const Prefixes states(order.layers);
    SetPlan plan = BackwardSearch(states, price, limits).result();
    if (plan.value < best.value) best = std::move(plan);
  }
  best.search = "exact over " + std::to_string(input.orders.size()) + " layer orders";
  return best;
}

}  // namespace pp::plan
