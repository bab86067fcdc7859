// dnn-partitioning and Piper against enumeration of every staging of small graphs.
#include <algorithm>
#include <map>

#include "libplan/peers/set_search.h"
#include "libprofile/core/index.h"
#include "tests/libplan/peers/support.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/peers/set_models");

namespace pp::plan::set_models_test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

PeerOptions on(PeerModel model, int devices) {
  PeerOptions options;
  options.model = model;
  options.levels = {{devices, BytesPerSecond(1e9)}};
  return options;
}

/// dnn-partitioning's load of stage `s`, as it is written down: with `transfer_s` of each layer.
double load_of(const Profile& profile, const PlanGraph& graph, const std::vector<int>& stage, int s,
               double limit) {
  double load = 0;
  std::int64_t bytes = 0;
  const auto crosses = [&](int layer, const std::vector<int>& readers) {
    return std::any_of(readers.begin(), readers.end(),
                       [&](int reader) { return (stage[at(layer)] == s) != (stage[at(reader)] == s); });
  };
  for (int layer = 0; layer < graph.size(); ++layer) {
    const LayerPoint& point = profile.layers[at(layer)].points.front();
    if (crosses(layer, graph.layers[at(layer)].consumers)) load += point.transfer->count();
    if (crosses(layer, graph.layers[at(layer)].producers)) load += point.gradient_transfer->count();
    if (stage[at(layer)] != s) continue;
    load += (point.forward.median + point.backward.median).count();
    bytes += point.saved.value + profile.layers[at(layer)].parameters.value;
  }
  return static_cast<double>(bytes) > limit ? kInfinity : load;
}

double least_load(const Profile& profile, int devices, double limit) {
  const PlanGraph graph = make_graph(profile);
  double least = kInfinity;
  test::each_staging(profile, devices, [&](const std::vector<int>& stage) {
    double largest = 0;
    for (int s = 0; s < devices; ++s) {
      if (std::find(stage.begin(), stage.end(), s) != stage.end())
        largest = std::max(largest, load_of(profile, graph, stage, s, limit));
    }
    least = std::min(least, largest);
  });
  return least;
}

/// What one device pays for a layer at a tensor-parallel degree; nothing: it does not run there.
struct Share {
  PiperVariant plain, recompute;
  double weights = 0;
  std::map<std::string, Bytes> incoming, outgoing;
};

std::optional<Share> share_of(const LayerProfile& layer, int degree) {
  const PiperLayer& piper = *layer.piper;
  if (degree == 1) {
    return Share{piper.plain, *piper.recompute, static_cast<double>(layer.parameters.value), piper.incoming,
                 piper.outgoing};
  }
  for (const PiperShare& share : piper.tensor) {
    if (share.degree != degree) continue;
    return Share{share.plain, *share.recompute, static_cast<double>(share.parameters.value), share.incoming,
                 share.outgoing};
  }
  return std::nullopt;
}

/// Piper's time of the layers in `members` on d replicas of t devices, with the cheapest choice of layers to
/// recompute.
double piper_time(const Profile& profile, const PlanGraph& graph, const std::vector<int>& members, int d, int t,
                  int later, int batch, double limit) {
  if (batch % d != 0) return kInfinity;
  const auto member = [&](int layer) {
    return std::find(members.begin(), members.end(), layer) != members.end();
  };
  double crossing = 0, weights = 0;
  std::vector<Share> shares;
  for (const int layer : members) {
    const std::optional<Share> share = share_of(profile.layers[at(layer)], t);
    if (!share) return kInfinity;
    weights += share->weights;
    for (const int producer : graph.layers[at(layer)].producers) {
      if (!member(producer))
        crossing += static_cast<double>(share->incoming.at(profile.layers[at(producer)].name).value);
    }
    for (const int reader : graph.layers[at(layer)].consumers) {
      if (!member(reader))
        crossing += static_cast<double>(share->outgoing.at(profile.layers[at(reader)].name).value);
    }
    shares.push_back(*share);
  }
  const double in_flight = std::ceil(static_cast<double>(later + d) / d);
  double least = kInfinity;
  for (unsigned chosen = 0; chosen < (1U << members.size()); ++chosen) {
    double seconds = 0, bytes = 0;
    for (std::size_t i = 0; i < members.size(); ++i) {
      const PiperVariant& variant = (chosen >> i & 1) != 0 ? shares[i].recompute : shares[i].plain;
      seconds += variant.time.count();
      bytes += in_flight * static_cast<double>(variant.saved.value) + static_cast<double>(variant.fixed.value);
    }
    if (bytes <= limit) least = std::min(least, seconds);
  }
  return (least + 2 * crossing / 1e9) / d + 4.0 * (d - 1) / d * weights / (batch * 1e9);
}

double least_piper(const Profile& profile, int devices, int batch, double limit) {
  const PlanGraph graph = make_graph(profile);
  double least = kInfinity;
  test::each_staging(profile, graph.size(), [&](const std::vector<int>& stage) {
    std::vector<std::vector<int>> members(stage.size());
    for (int layer = 0; layer < graph.size(); ++layer) members[at(stage[at(layer)])].push_back(layer);
    std::erase_if(members, [](const std::vector<int>& one) { return one.empty(); });
    const std::function<void(std::size_t, int, int, double)> count = [&](std::size_t behind, int later,
                                                                         int used, double slowest) {
      if (behind == 0) {
        least = std::min(least, slowest);
        return;
      }
      for (const int t : {1, 2}) {
        for (int d = 1; used + d * t <= devices && later + d <= batch; ++d) {
          const double time = piper_time(profile, graph, members[behind - 1], d, t, later, batch, limit);
          count(behind - 1, later + d, used + d * t, std::max(slowest, time));
        }
      }
    };
    count(members.size(), 0, 0, 0);
  });
  return least;
}

void add_transfers(Profile& profile, test::Random& random) {
  for (LayerProfile& layer : profile.layers) {
    layer.points.front().transfer = Seconds(random.integer(0, 4) * 1e-3);
    layer.points.front().gradient_transfer = Seconds(random.integer(0, 4) * 1e-3);
  }
}

/// A in 2..9, recomputed 1; recomputing adds 1 to 3 ms. Three in four layers also run on two devices, in no
/// less than half the time, with half of the rest and synchronised edges.
void add_piper_costs(Profile& profile, test::Random& random) {
  const PlanGraph graph = make_graph(profile);
  for (int i = 0; i < graph.size(); ++i) {
    LayerProfile& layer = profile.layers[at(i)];
    const Seconds time(random.integer(1, 9) * 1e-3);
    const Bytes fixed(random.integer(0, 3));
    const Bytes saved(random.integer(2, 9));
    const Seconds again(random.integer(1, 3) * 1e-3);
    layer.piper = PiperLayer{{time, saved, fixed}, PiperVariant{time + again, Bytes(1), fixed}, {}};
    if (random.integer(0, 3) == 0) continue;
    const Seconds shared = time / 2 + Seconds(random.integer(0, 2) * 1e-3);
    const Bytes half(fixed.value / 2);
    layer.piper->tensor.push_back({2,
                                   Bytes(layer.parameters.value / 2),
                                   {shared, Bytes((saved.value + 1) / 2), half},
                                   PiperVariant{shared + again / 2, Bytes(0), half},
                                   {},
                                   {}});
  }
  for (int i = 0; i < graph.size(); ++i) {
    for (const int producer : graph.layers[at(i)].producers) {
      LayerProfile& reader = profile.layers[at(i)];
      LayerProfile& source = profile.layers[at(producer)];
      const auto cost = [&] { return Bytes(random.integer(0, 4) * 1'000'000); };
      reader.piper->incoming[source.name] = cost();
      source.piper->outgoing[reader.name] = cost();
      for (PiperShare& share : reader.piper->tensor) share.incoming[source.name] = cost();
      for (PiperShare& share : source.piper->tensor) share.outgoing[reader.name] = cost();
    }
  }
}

void check(const std::optional<PeerPlan>& plan, double expected) {
  REQUIRE(plan.has_value() == (expected < kInfinity));
  if (plan) CHECK(plan->objective.count() == doctest::Approx(expected).epsilon(1e-12));
}

}  // namespace

TEST_CASE("dnn-partitioning's loads equal enumeration on random graphs, memory included") {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    test::Random random(seed);
    Profile profile = test::random_profile(random, random.integer(1, 6), true);
    add_transfers(profile, random);
    PeerOptions options = on(PeerModel::dnn_partitioning, random.integer(1, 3));
    options.memory_limit = Bytes(random.integer(5, 40) * 1'000'000);
    const auto limit = static_cast<double>(options.memory_limit->value);
    check(test::plan_of(profile, options), least_load(profile, options.levels.front().devices, limit));
  }
}

TEST_CASE("a limit named as the smallest fits, one byte less does not") {
  test::Random random(7);
  Profile profile = test::random_profile(random, 6, true);
  add_transfers(profile, random);
  PeerOptions options = on(PeerModel::dnn_partitioning, 2);
  options.memory_limit = Bytes(1);
  const Infeasible none = std::get<Infeasible>(plan_as_peer(profile, options));
  REQUIRE(none.smallest_limit.has_value());
  CHECK(none.short_by == *none.smallest_limit - Bytes(1));
  CHECK(none.remedy == "--memory-limit " + std::to_string(none.smallest_limit->value));
  options.memory_limit = none.smallest_limit;
  CHECK(test::plan_of(profile, options).has_value());
  options.memory_limit = *none.smallest_limit - Bytes(1);
  CHECK_FALSE(test::plan_of(profile, options).has_value());
}

TEST_CASE(
    "Piper's times equal enumeration on random graphs, with memory, recomputed layers and split tensors") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    test::Random random(seed);
    Profile profile = test::random_profile(random, random.integer(1, 4), true);
    add_piper_costs(profile, random);
    PeerOptions options = on(PeerModel::piper, random.integer(1, 4));
    options.strategy = PeerStrategy::automatic;
    options.micro_batches_in_batch = random.integer(1, 6);
    options.memory_limit = Bytes(random.integer(3, 60));
    const auto limit = static_cast<double>(options.memory_limit->value);
    const double expected =
        least_piper(profile, options.levels.front().devices, options.micro_batches_in_batch, limit);
    check(test::plan_of(profile, options), expected);
    options.strategy = PeerStrategy::released;
    const auto released = test::plan_of(profile, options);
    REQUIRE(released.has_value() == (expected < kInfinity));
    if (released) CHECK(released->objective.count() >= expected * (1 - 1e-12));
  }
}

TEST_CASE("piper costs that miss an edge are refused") {
  Profile profile = test::make_profile({{{1, 1}, {1, 1}}, {}, {1}});
  for (LayerProfile& layer : profile.layers) layer.piper = PiperLayer{{Seconds(1), {}, {}}, std::nullopt, {}};
  CHECK_THROWS_WITH(plan_as_peer(profile, on(PeerModel::piper, 2), true),
                    "layer b: its piper costs do not list what comes from layer a; import the profile again");
}

TEST_CASE("a graph with too many down-sets is searched on its layer orders") {
  // 40 independent pairs of layers have 3^40 down-sets. 80 layers of 1 ms on 4 devices: 20 ms.
  test::ProfileSpec spec;
  for (int i = 0; i < 40; ++i) {
    spec.layers.insert(spec.layers.end(), {{0, 1}, {0, 1}});
    spec.edges.emplace_back(2 * i, 2 * i + 1);
  }
  const auto plan = test::plan_of(test::make_profile(spec), on(PeerModel::dnn_partitioning, 4));
  CHECK(plan->objective.count() == doctest::Approx(0.020).epsilon(1e-12));
  CHECK(plan->search.ends_with(" layer orders"));
}

TEST_CASE("down-sets of a chain, of independent layers and of the diamond") {
  const auto count = [](const Profile& profile, std::size_t most) {
    return down_sets(make_graph(profile), most).size();
  };
  const std::vector<test::LayerRow> four(4);
  CHECK(count(test::make_profile({four, {}, {1}}), 100) == 5);  // its prefixes
  const Profile fan = test::make_profile({four, {{0, 1}, {0, 2}, {0, 3}}, {1}});
  CHECK(count(fan, 100) == 9);  // nothing, or the source with any of 2^3 sets of readers
  const Profile diamond = test::make_profile({four, {{0, 1}, {0, 2}, {1, 3}, {2, 3}}, {1}});
  CHECK(count(diamond, 100) == 6);  // 0, s, sa, sb, sab, sabc
  CHECK(count(diamond, 6) == 6);
  CHECK(count(diamond, 5) == 0);
}

}  // namespace pp::plan::set_models_test

TEST_SUITE_END();
