#include "libplan/peers/set_search.h"

#include <algorithm>

#include "libplan/cost/constants.h"
#include "libprofile/core/index.h"

namespace pp::plan {

namespace {

constexpr std::size_t kMostSets = 50'000;
constexpr double kMostSteps = 2e9;

/// best[state][u]: the least largest load of what is missing in `state`, on exactly u devices.
class BackwardSearch {
 public:
  BackwardSearch(const std::vector<LayerSet>& sets, int layers, StagePrice& price, int devices)
      : sets_(sets), layers_(layers), devices_(devices), best_(sets.size() * at(devices + 1)) {
    entry(full(), 0).value = 0;
    for (int end = full(); end > 0; --end) {
      for (int begin = end - 1; begin >= 0; --begin) {
        if (sets_[at(end)].contains(sets_[at(begin)])) extend(begin, end, price);
      }
    }
  }

  SetPlan result() {
    SetPlan plan;
    int devices = 0;
    for (int used = 1; used <= devices_; ++used) {
      if (entry(0, used).value < plan.value) plan.value = entry(0, devices = used).value;
    }
    if (devices == 0) return plan;
    for (int state = 0; state < full();) {
      const Entry& chosen = entry(state, devices--);
      plan.stages.push_back(layers_between(sets_[at(state)], sets_[at(chosen.end)], layers_));
      state = chosen.end;
    }
    return plan;
  }

 private:
  struct Entry {
    double value = kInfinity;
    int end = 0;
  };
  Entry& entry(int state, int devices) { return best_[at(state) * at(devices_ + 1) + at(devices)]; }
  int full() const { return static_cast<int>(sets_.size()) - 1; }

  void extend(int begin, int end, StagePrice& price) {
    price.clear();
    for (const int layer : layers_between(sets_[at(begin)], sets_[at(end)], layers_)) price.add(layer);
    const double load = price.load();
    for (int later = 0; later < devices_; ++later) {
      const double value = std::max(entry(end, later).value, load);
      Entry& target = entry(begin, later + 1);
      if (value < target.value) target = {value, end};
    }
  }

  const std::vector<LayerSet>& sets_;
  int layers_;
  int devices_;
  std::vector<Entry> best_;
};

bool affordable(std::size_t sets, int layers) {
  const auto count = static_cast<double>(sets);
  return sets > 0 && count * count / 2 * layers <= kMostSteps;
}

}  // namespace

SearchedSets searched_sets(const PeerInput& input) {
  std::vector<LayerSet> sets = down_sets(input.graph, kMostSets);
  if (affordable(sets.size(), input.size())) {
    const std::string count = std::to_string(sets.size());
    return {{std::move(sets)}, true, "exact over all " + count + " down-sets"};
  }
  SearchedSets searched;
  for (const LinearOrder& order : input.orders) {
    auto& prefixes = searched.chains.emplace_back(1, LayerSet(input.size()));
    for (const int layer : order.layers) {
      LayerSet longer = prefixes.back();
      longer.add(layer);
      prefixes.push_back(std::move(longer));
    }
  }
  searched.words = "exact over " + std::to_string(input.orders.size()) + " layer orders";
  return searched;
}

SetPlan search_sets(const SearchedSets& searched, int layers, StagePrice& price, int devices) {
  SetPlan best;
  for (const std::vector<LayerSet>& sets : searched.chains) {
    SetPlan plan = BackwardSearch(sets, layers, price, devices).result();
    if (plan.value < best.value) best = std::move(plan);
  }
  return best;
}

}  // namespace pp::plan
