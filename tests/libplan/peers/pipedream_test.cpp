#include "libplan/peers/pipedream.h"

#include <algorithm>

#include "tests/libplan/peers/support.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/peers/pipedream");

namespace pp::plan::pipedream_test {
namespace {

PeerOptions on(std::vector<PeerLevel> levels, PeerModel model = PeerModel::pipedream_code) {
  PeerOptions options;
  options.model = model;
  options.levels = std::move(levels);
  return options;
}

PeerOptions on(int machines, double bandwidth) { return on({{machines, BytesPerSecond(bandwidth)}}); }

/// The definition, by enumeration: no table, no order of evaluation shared with the planner.
class Oracle {
 public:
  Oracle(const Profile& profile, const PeerOptions& options) : profile_(profile), options_(options) {}

  double best() const { return best(static_cast<int>(options_.levels.size()) - 1, 0, layers()); }

 private:
  int layers() const { return static_cast<int>(profile_.layers.size()); }
  const LayerPoint& point(int layer) const { return profile_.layers[at(layer)].points.front(); }

  double best(int level, int begin, int end) const {
    const int machines = options_.levels[at(level)].devices;
    const int fewest = options_.machines == MachinesRule::exactly ? machines : 1;
    double least = std::numeric_limits<double>::infinity();
    for (int m = fewest; m <= machines; ++m) {
      Partition stages;
      test::each_split(begin, end, m, stages,
                       [&](const Partition& all) { least = std::min(least, value(level, all)); });
    }
    return least;
  }

  double value(int level, const Partition& stages) const {
    const PeerLevel& links = options_.levels[at(level)];
    const bool paper = options_.model == PeerModel::pipedream_paper;
    double slowest = 0;
    int used = 0;
    for (std::size_t s = 0; s < stages.size(); ++s) {
      const auto [begin, end, q] = stages[s];
      double compute = 0, weights = 0, bytes = 0;
      for (int layer = begin; layer < end; ++layer) {
        compute += (point(layer).forward.median + point(layer).backward.median).count();
        weights += static_cast<double>(profile_.layers[at(layer)].parameters.value);
        bytes += static_cast<double>(point(layer).saved.value);
      }
      used += q;
      const double kept = std::ceil(static_cast<double>(links.devices - used) / q);
      if (options_.memory_limit && kept * (bytes + weights) > static_cast<double>(options_.memory_limit->value))
        return std::numeric_limits<double>::infinity();
      if (level > 0) compute = best(level - 1, begin, end);
      const bool grouped = level > 0 && stages.size() == 1 && !paper;
      const int group = grouped ? options_.levels[at(level - 1)].devices : 1;
      const double reduce =
          (paper ? 2.0 * (q - 1) : 4.0 * (q - 1) / q) * weights / links.bandwidth.value / group;
      slowest = std::max(slowest, (paper ? std::max(compute, reduce) : compute + reduce) / q);
      if (s > 0) slowest = std::max(slowest, cut(begin, links, paper ? 1 : q));
      if (s > 0 && end < layers() && !paper) slowest = std::max(slowest, cut(end, links, q));
    }
    return slowest;
  }

  double cut(int boundary, const PeerLevel& links, int share) const {
    if (!options_.activation_compression) return 0;
    return 2 * static_cast<double>(point(boundary - 1).output.value) / links.bandwidth.value / share;
  }

  const Profile& profile_;
  const PeerOptions& options_;
};

void check_against_oracle(const Profile& profile, const PeerOptions& options) {
  const double expected = Oracle(profile, options).best();
  const auto plan = test::plan_of(profile, options);
  REQUIRE(plan.has_value() == (expected < std::numeric_limits<double>::infinity()));
  if (plan) CHECK(plan->objective.count() == doctest::Approx(expected).epsilon(1e-12));
}

}  // namespace

TEST_CASE("row 12: one level equals enumeration: both models, machine rules, free activations, memory limits") {
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    CAPTURE(seed);
    test::Random random(seed);
    const Profile profile = test::random_profile(random, random.integer(1, 6), false);
    PeerOptions options = on(random.integer(1, 5), 1e9);
    options.model = seed % 2 == 0 ? PeerModel::pipedream_code : PeerModel::pipedream_paper;
    options.machines = seed % 3 == 0 ? MachinesRule::at_most : MachinesRule::exactly;
    if (seed % 5 == 0) options.activation_compression.reset();
    if (seed % 4 == 0) options.memory_limit = Bytes(random.integer(1, 30) * 1'000'000);
    check_against_oracle(profile, options);
  }
}

TEST_CASE("two and three levels, up to 3 x 2 x 2 machines, equal enumeration") {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    CAPTURE(seed);
    test::Random random(seed);
    const Profile profile = test::random_profile(random, random.integer(1, 5), false);
    std::vector<PeerLevel> levels{{random.integer(1, 3), BytesPerSecond(4e9)}, {2, BytesPerSecond(1e9)}};
    if (seed % 2 == 0) levels.push_back({2, BytesPerSecond(5e8)});
    PeerOptions options = on(levels, seed % 3 == 0 ? PeerModel::pipedream_paper : PeerModel::pipedream_code);
    if (seed % 4 == 0) options.machines = MachinesRule::at_most;
    check_against_oracle(profile, options);
  }
}

TEST_CASE("a plan of the diamond over two levels is a possible one") {
  // Source 7, a 3, b 10, c 4 ms without weights on 2 x 2 devices: nothing beats all work on all four, 24/4 = 6
  // ms. The released two-level form does, by joining intervals that do not nest.
  for (const auto& edges : {std::vector<std::pair<int, int>>{{0, 1}, {0, 2}, {1, 3}, {2, 3}},
                            std::vector<std::pair<int, int>>{{0, 2}, {0, 1}, {2, 3}, {1, 3}}}) {
    const Profile profile = test::make_profile({{{0, 7}, {0, 3}, {0, 10}, {0, 4}}, edges, {1}});
    const auto plan = test::plan_of(profile, on({{2, BytesPerSecond(1e9)}, {2, BytesPerSecond(1e9)}}));
    CHECK(plan->objective.count() == doctest::Approx(0.006).epsilon(1e-12));
  }
}

TEST_CASE("the stages of several levels multiply their replicas") {
  // Two layers of 4 ms without weights, free cuts, 2 x 2 devices: data parallelism over all four gives 2 ms.
  const Profile profile = test::make_profile({{{1, 3}, {1, 3}}, {}, {1}});
  const auto plan = test::plan_of(profile, on({{2, BytesPerSecond(1e9)}, {2, BytesPerSecond(1e9)}}));
  CHECK(plan->objective.count() == doctest::Approx(0.002).epsilon(1e-12));
  CHECK(replicas_text(*plan) == "4");
  CHECK(cuts_of(*plan).empty());
}

TEST_CASE("the released memory test leaves data parallelism whatever the limit") {
  const Profile profile = test::make_profile({{{1, 2, 8, 8, 8, 0, 0}, {1, 2, 8, 8, 8, 0, 0}}, {}, {1}});
  PeerOptions options = on(2, 1e9);
  options.memory_limit = Bytes(1);
  CHECK(replicas_text(*test::plan_of(profile, options)) == "2");
}

}  // namespace pp::plan::pipedream_test

TEST_SUITE_END();
