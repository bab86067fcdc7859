// Layer orders against the search over all antichains (down-sets) that PipeDream's optimizer makes, on its
// published profiles.
#include <algorithm>
#include <functional>

#include "libplan/peers/input.h"
#include "libplan/search/exact/any_order.h"
#include "libplan/search/exact/bottleneck.h"
#include "libprofile/core/index.h"
#include "tests/libplan/search/profiles.h"
#include "tests/support/test_data.h"

#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/peers/antichain");

namespace pp::plan::antichain_test {
namespace {

/// PipeDream's code with activations charged, at most so many machines: a stage costs (C + 4(q-1)W/(Bq))/q, a
/// cut 2x/(Bq) at both sides, x once for each tensor. Over a chain or a lattice.
class ChargedCost : public StageCost {
 public:
  ChargedCost(const Chain& chain, double bandwidth) : chain_(chain), bandwidth_(bandwidth) {}
  double stage(int begin, int end, DeviceSpan span) const override {
    const int q = span.count;
    const double reduce =
        4.0 * (q - 1) / (bandwidth_ * q) * static_cast<double>(chain_.between(begin, end).parameters);
    return (chain_.compute(begin, end) + reduce) / q;
  }
  double cut(int boundary, DeviceSpan span, CutSide) const override {
    return 2 * chain_.cut_activation[at(boundary)] / (bandwidth_ * span.count);
  }
  bool fits(int, int, DeviceSpan) const override { return true; }

 private:
  const Chain& chain_;
  double bandwidth_;
};

SearchSpace space_of(int boundaries, int devices) {
  SearchSpace space;
  space.layers = boundaries - 1;
  space.devices = devices;
  return space;
}

/// What the released code counts at a cut: its antichain (the layers of `set` that nothing in it reads), and
/// every layer before one of these that also feeds something which is neither before it nor itself, inside or
/// outside.
double augmented_cut(const PeerInput& input, const LayerSet& set) {
  const auto& layers = input.graph.layers;
  std::vector<char> counted(layers.size(), 0);
  for (int last = 0; last < input.size(); ++last) {
    const auto inside = [&](int reader) { return set.has(reader); };
    if (!set.has(last) || std::ranges::any_of(layers[at(last)].consumers, inside)) continue;
    std::vector<char> before(layers.size(), 0);
    before[at(last)] = 1;
    for (int l = last; l >= 0; --l) {
      if (before[at(l)] == 0) continue;
      for (const int source : layers[at(l)].producers) before[at(source)] = 1;
    }
    counted[at(last)] = 1;
    for (std::size_t l = 0; l < layers.size(); ++l) {
      const auto elsewhere = [&](int reader) { return before[at(reader)] == 0; };
      if (before[l] != 0 && std::ranges::any_of(layers[l].consumers, elsewhere)) counted[l] = 1;
    }
  }
  double bytes = 0;
  for (std::size_t l = 0; l < layers.size(); ++l)
    bytes += counted[l] != 0 ? static_cast<double>(input.prices[l].output) : 0;
  return bytes;
}

double best_of_orders(const PeerInput& input, const std::vector<LinearOrder>& orders, int devices,
                      double bandwidth) {
  double best = std::numeric_limits<double>::infinity();
  for (const LinearOrder& order : orders) {
    const Chain chain = chain_of(input, order);
    best = std::min(
        best, search_bottleneck(space_of(input.size() + 1, devices), ChargedCost(chain, bandwidth)).value);
  }
  return best;
}

BottleneckResult best_of_antichains(const Lattice& lattice, const Chain& chain, int devices, double bandwidth) {
  return search_any_order(lattice, space_of(lattice.size(), devices), ChargedCost(chain, bandwidth));
}

/// A linear order in which the stages are contiguous.
std::vector<int> order_of(const Lattice& lattice, const Partition& partition, int layers) {
  std::vector<int> order;
  for (const auto& [begin, end, replicas] : partition) {
    const std::vector<int> stage = layers_between(lattice.sets[at(begin)], lattice.sets[at(end)], layers);
    order.insert(order.end(), stage.begin(), stage.end());
  }
  return order;
}

/// Calls `check` with each published profile, each number of devices and each bandwidth.
void for_each_profile(const std::function<void(const PeerInput&, const Lattice&, int, double)>& check) {
  for (const char* name : {"vgg16", "alexnet", "resnet50", "gnmt"}) {
    const Profile profile = pp::test::peer_profile(name);
    const PeerInput input = peer_input(profile);
    const Lattice lattice = make_lattice(input.graph, 4096).value();
    for (const int devices : {2, 4, 8, 16}) {
      for (const double bandwidth : {1e9, 1.25e9, 1e10}) {
        CAPTURE(std::string(name));
        CAPTURE(devices);
        CAPTURE(bandwidth);
        check(input, lattice, devices, bandwidth);
      }
    }
  }
}

}  // namespace

TEST_CASE("the diamond: the released code counts the source behind both of its readers") {
  // source 1 byte -> a 10, b 100 -> sink: after {source, a, b} cross a and b, the source not any more.
  const Profile profile = test::make_profile(
      {{{1, 0, 0, 1, 0, 0, 0}, {1, 0, 0, 10, 0, 0, 0}, {1, 0, 0, 100, 0, 0, 0}, {1, 0, 0, 0, 0, 0, 0}},
       {{0, 1}, {0, 2}, {1, 3}, {2, 3}},
       {1}});
  const PeerInput input = peer_input(profile);
  const Lattice lattice = make_lattice(input.graph, 4096).value();
  CHECK(augmented_cut(input, lattice.sets[4]) == 111);
  CHECK(make_lattice_chain(input.graph, lattice, input.prices, {}, {}).cut_activation[4] == 110);
}

TEST_CASE("the layer orders are never worse than PipeDream's antichains when activations are charged") {
  for_each_profile([](const PeerInput& input, const Lattice& lattice, int devices, double bandwidth) {
    Chain chain = make_lattice_chain(input.graph, lattice, input.prices, {}, {});
    for (std::size_t k = 1; k + 1 < lattice.sets.size(); ++k)
      chain.cut_activation[k] = augmented_cut(input, lattice.sets[k]);
    const double peer = best_of_antichains(lattice, chain, devices, bandwidth).value;
    CHECK(best_of_orders(input, input.orders, devices, bandwidth) <= peer * (1 + 1e-9));
  });
}

TEST_CASE("with the order found over all down-sets they are as good as any order") {
  for_each_profile([](const PeerInput& input, const Lattice& lattice, int devices, double bandwidth) {
    const Chain chain = make_lattice_chain(input.graph, lattice, input.prices, {}, {});
    const BottleneckResult best = best_of_antichains(lattice, chain, devices, bandwidth);
    std::vector<LinearOrder> orders = input.orders;
    CHECK(best_of_orders(input, orders, devices, bandwidth) >= best.value * (1 - 1e-9));
    orders.push_back({"down-sets", order_of(lattice, best.partition, input.size())});
    CHECK(best_of_orders(input, orders, devices, bandwidth) == doctest::Approx(best.value).epsilon(1e-9));
  });
}

}  // namespace pp::plan::antichain_test

TEST_SUITE_END();
