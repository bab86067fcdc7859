// Chains of any length to plan for, the same for the same seed on every machine: times of 1 to 21 ms, half of
// them with up to 100 MB of weights, cuts of 1 to 41 MB.
#pragma once

#include <cstdint>
#include <numeric>
#include <random>

#include "libplan/cost/chain.h"
#include "libplan/cost/graph.h"
#include "libplan/cost/priced_model.h"
#include "tests/libplan/search/profiles.h"

namespace pp::bench {

constexpr double kBandwidth = 1e9;

/// Forward and backward together take 1e-3 + 2e-2 u u' s, one third of it forward; half of the layers have
/// weights, 1e8 u^3 bytes; a cut moves 1e6 + 4e7 u^2 bytes.
inline Profile random_chain(int layers, std::uint64_t seed = 1) {
  std::mt19937_64 bits(seed);
  const auto u = [&] { return static_cast<double>(bits() >> 11) * 0x1p-53; };
  plan::test::ProfileSpec spec;
  for (int i = 0; i < layers; ++i) {
    const double first = u();
    const double time_ms = 1 + 20 * first * u();
    const bool weighted = u() < 0.5;
    const double weight = u();
    const double cut = u();
    plan::test::LayerRow row;
    row.forward_ms = time_ms / 3;
    row.backward_ms = time_ms * 2 / 3;
    row.parameters = weighted ? static_cast<std::int64_t>(1e8 * weight * weight * weight) : 0;
    row.output = static_cast<std::int64_t>(1e6 + 4e7 * cut * cut);
    spec.layers.push_back(row);
  }
  return plan::test::make_profile(spec);
}

inline plan::Chain chain_of(const Profile& profile) {
  const plan::PlanGraph graph = plan::make_graph(profile);
  const plan::PricedModel model = plan::price_model(profile, std::vector<int>{1}, {});
  std::vector<int> order(profile.layers.size());
  std::iota(order.begin(), order.end(), 0);
  return plan::make_chain(graph, std::move(order), model.layers, model.loss, {});
}

}  // namespace pp::bench
