#include "libplan/report/machines.h"

#include "tests/libplan/search/profiles.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/report/unequal_layers");

namespace pp::plan::unequal_layers_test {
namespace {

/// Layers of the same code that took so many ms forward and twice that backward.
Profile measured(const std::vector<double>& forward_ms) {
  std::vector<test::LayerRow> rows;
  for (const double ms : forward_ms) rows.push_back({ms, 2 * ms, 1000, 4000, 8000, 0, 0});
  Profile profile = test::make_profile({rows, {}, {1, 4}});
  profile.mode = ProfileMode::in_place;
  return profile;
}

}  // namespace

TEST_CASE("six equal blocks that took 0.4 to 6.9 ms are named, with both ends") {
  // At micro-batches of 4 all take four times as long: 12 * 0.4 and 12 * 6.9 ms.
  const auto found = unequal_layers(measured({6.9, 5.1, 0.5, 0.4, 0.6, 2.3}));
  REQUIRE(found);
  CHECK(found->layers == 6);
  CHECK(found->fastest == "d");
  CHECK(found->slowest == "a");
  CHECK(found->least.count() == doctest::Approx(4.8e-3));
  CHECK(found->most.count() == doctest::Approx(82.8e-3));
}

TEST_CASE("what differs by half is noise, and so is what weighs nothing") {
  CHECK_FALSE(unequal_layers(measured({1, 1.4, 1.5, 1.2})));
  CHECK(unequal_layers(measured({1, 1.4, 1.6, 1.2})));
  // Two layers of another size take 1 % of the time: 0.1 and 0.3 of 42.4 ms.
  Profile profile = measured({10, 11, 10, 11, 0.1, 0.3});
  for (const std::size_t small : {4U, 5U}) profile.layers[small].parameters = Bytes(10);
  CHECK_FALSE(unequal_layers(profile));
}

TEST_CASE("layers of other code, and times that nobody measured here, are not compared") {
  Profile profile = measured({10, 1});
  profile.layers[0].parameters = Bytes(2000);
  CHECK_FALSE(unequal_layers(profile));
  profile = measured({10, 1});
  profile.model.layers[0].attributes.emplace("causal", true);
  CHECK_FALSE(unequal_layers(profile));
  profile = measured({10, 1});
  CHECK(unequal_layers(profile));
  for (const ProfileMode mode : {ProfileMode::imported, ProfileMode::estimated}) {
    profile.mode = mode;
    CHECK_FALSE(unequal_layers(profile));
  }
}

}  // namespace pp::plan::unequal_layers_test

TEST_SUITE_END();
