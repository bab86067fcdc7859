#include "libprofile/measure/findings.h"

#include "tests/support/doctest.h"

namespace pp::profile {
namespace {

TimeStat exactly(double seconds) { return {Seconds(seconds), Seconds(seconds), Seconds(seconds), 10}; }

TimeStat spread(double low, double median, double high) {
  return {Seconds(median), Seconds(low), Seconds(high), 10};
}

/// One layer, measured at sizes 1, 2, ...: `layer` seconds forward and as much backward, the whole model as
/// given.
Profile profile_of(double layer, const std::vector<TimeStat>& whole) {
  Profile profile;
  profile.layers.emplace_back();
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const std::int64_t size = static_cast<std::int64_t>(i) + 1;
    LayerPoint& point = profile.layers.front().points.emplace_back();
    point.micro_batch_size = size;
    point.forward = point.backward = exactly(layer);
    profile.whole_model.push_back(
        {.micro_batch_size = size, .forward = whole[i], .backward = exactly(1.0), .peak = {}});
  }
  return profile;
}

using Findings = std::vector<std::string>;

}  // namespace

TEST_SUITE("libprofile/measure/findings") {
  TEST_CASE("enough idle cores are no finding") {
    CHECK(conditions_findings({.count = 2}, 2, Load{1.9, 2}, 1.9).empty());
    // 2 of 64 cores, which others keep busy: not these two.
    CHECK(conditions_findings({.count = 2}, 2, Load{40, 64}, std::nullopt).empty());
    CHECK(conditions_findings({.count = 2}, 2, std::nullopt, std::nullopt).empty());
  }

  TEST_CASE("devices that must share cores are named") {
    CHECK(conditions_findings({.count = 2, .cores = 2}, 2, Load{0, 2}, 1.0) ==
          Findings{
              "cpu:2x2 needs 4 cores, this process may use 2 cores: devices share cores and their times hold "
              "for this "
              "sharing only; ask for fewer devices or cores"});
  }

  TEST_CASE("a load average above the number of cores is named") {
    CHECK(
        conditions_findings({}, 1, Load{1.26, 1}, std::nullopt) ==
        Findings{
            "the load average is 1.3 on 1 core: other programs slow the measurement down; end them, or measure "
            "again later"});
  }

  TEST_CASE("caches that others use up are named") {
    CHECK(
        conditions_findings({}, 1, Load{0, 1}, 4.66) ==
        Findings{"8 MiB that a core leaves alone for 5 ms take 4.7 times as long to read again: others use up "
                 "the last cache, here or in other virtual machines on this processor; stages that wait will "
                 "take longer than predicted; end other programs, use a machine of your own, or plans with "
                 "more micro-batches, in which stages wait less"});
  }

  TEST_CASE("steady times that add up are no finding") {
    // 2 * 1.0 s of the layer over 2.0 s of the whole model; a spread of (1.08 - 0.90) / 2 = 9 %.
    CHECK(profile_findings(profile_of(1.0, {exactly(1.0), spread(0.90, 1.0, 1.08)})).empty());
  }

  TEST_CASE("a spread above 10 % names the sizes and the worst of them") {
    // (1.2 - 0.9) / 2 = 15 % at size 1, (1.4 - 0.9) / 2 = 25 % at size 3.
    const Profile profile = profile_of(1.0, {spread(0.9, 1.0, 1.2), exactly(1.0), spread(0.9, 1.0, 1.4)});
    CHECK(profile_findings(profile) ==
          Findings{
              "times at micro-batch sizes 1, 3 spread by up to 25 % around the median: predictions will be as "
              "rough; end other programs, or raise --budget"});
  }

  TEST_CASE("layers that do not add up to the whole model are named") {
    // Layers 2.0 s; the whole model 2.5 s at size 1 (80 %), 2.0 s at size 2.
    CHECK(profile_findings(profile_of(1.0, {exactly(1.5), exactly(1.0)})) ==
          Findings{"the layers at micro-batch size 1 add up to 80 % of the whole model's time: predictions "
                   "will be off "
                   "by as much; end other programs, or raise --budget"});
  }

  TEST_CASE("a backward that takes longer than its halves is named, under every condition") {
    // Both halves take 1.0 s, as the backward; 0.9 s while the others idle, where it takes 0.98 s, then 1.08 s.
    Profile profile = profile_of(1.0, {exactly(1.0), exactly(1.0)});
    profile.micro_batch_sizes = {1, 2};
    for (LayerPoint& point : profile.layers[0].points) {
      point.input_gradient = point.weight_gradient = exactly(0.5);
      point.alone = without_spread(Seconds(1.0), Seconds(0.98), Seconds(0.45), Seconds(0.45));
    }
    CHECK(profile_findings(profile).empty());
    profile.layers[0].points[1].alone->backward.median = Seconds(1.08);
    CHECK(
        profile_findings(profile) ==
        Findings{"full backwards at micro-batch size 2 take up to 120 % of their two halves, which do the same "
                 "work: the machine was disturbed in between; end other programs and profile again"});
  }

  TEST_CASE("outliers are named from three on, when they are more than a tenth") {
    CHECK_FALSE(outlier_finding(2, 5).has_value());
    CHECK_FALSE(outlier_finding(3, 30).has_value());
    CHECK(outlier_finding(3, 29) ==
          "3 of 29 passes were interrupted (far above the median of their size): other programs use these "
          "cores; end "
          "them, or choose other cores with --device");
  }
}

}  // namespace pp::profile
