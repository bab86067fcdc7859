#include "libprofile/report/diff.h"

#include <nlohmann/json.hpp>

#include "tests/libprofile/report/profiles.h"

#include "tests/support/doctest.h"

namespace pp::profile {
namespace {

using test::make_profile;
using Names = std::vector<std::string>;

}  // namespace

TEST_SUITE("libprofile/report/diff") {
  TEST_CASE("a profile does not differ from itself") {
    const Profile profile = make_profile({{"a", 1, 2, 8, 4}, {"b", 2, 1}}, {1, 2});
    const ProfileDiff diff = diff_profiles(profile, profile);
    CHECK(diff.differences.empty());
    CHECK(diff.micro_batch_size == 2);
    CHECK(diff.median_change == 0);
    CHECK(diff.total.ratio() == 1.0);
    CHECK(diff.total.within_spread);
  }

  TEST_CASE("layers are compared by name at the largest common size") {
    // At size 2 of {1, 2} and {2, 4}: a 6 -> 7 ms, b 6 -> 12 ms, the total 12 -> 19 ms. Intervals are 10 %
    // wide: a's 5.4..6.6 and 6.3..7.7 touch, b's 5.4..6.6 and 10.8..13.2 do not. Median of 1/6 and 1.
    const Profile first = make_profile({{"a", 1, 2, 8, 4}, {"b", 2, 1}}, {1, 2});
    const Profile second = make_profile({{"a", 1, 2.5, 8, 4}, {"b", 4, 2, 0, 3}}, {2, 4});
    const ProfileDiff diff = diff_profiles(first, second);
    CHECK(diff.micro_batch_size == 2);
    REQUIRE(diff.layers.size() == 2);
    CHECK(*diff.layers[0].ratio() == doctest::Approx(7.0 / 6));
    CHECK(diff.layers[0].within_spread);
    CHECK(diff.layers[0].first_memory == Bytes(16));
    CHECK(*diff.layers[1].ratio() == doctest::Approx(2));
    CHECK_FALSE(diff.layers[1].within_spread);
    CHECK(diff.layers[1].second_memory == Bytes(6));
    CHECK(diff.total.second.count() == doctest::Approx(19e-3));
    CHECK(diff.total.second_memory == Bytes(22));
    CHECK_FALSE(diff.total.within_spread);
    CHECK(diff.median_change == doctest::Approx((1.0 / 6 + 1) / 2));
    CHECK(diff.differences == std::vector<Difference>{{"micro-batch sizes", "[1, 2]", "[2, 4]"}});
  }

  TEST_CASE("what else differs is listed, context last") {
    Profile first = make_profile({{"a", 1, 1}}, {1});
    Profile second = first;
    first.context = {{"host", "here"}, {"libtorch", "2.11"}};
    second.context = {{"libtorch", "2.11"}, {"utc_time", "now"}};
    second.dtype = DType::bfloat16;
    second.memory_format = MemoryFormat::channels_last;
    second.device = {DeviceKind::cuda, "a card", 0, 1, Bytes(1 << 30)};
    CHECK(diff_profiles(first, second).differences ==
          std::vector<Difference>{{"dtype", "float32", "bfloat16"},
                                  {"memory format", "contiguous", "channels_last"},
                                  {"device kind", "cpu", "cuda"},
                                  {"device name", "a processor", "a card"},
                                  {"cores per device", "1", "0"},
                                  {"device memory", "0 B", "1 GiB"},
                                  {"context host", "here", "-"},
                                  {"context utc_time", "-", "now"}});
  }

  TEST_CASE("layers of one profile only, and those without memory, are left out and named") {
    const Profile first = make_profile({{"a", 1, 1}, {"b", 1, 1}, {"c", 1, 1}}, {1});
    Profile second = make_profile({{"c", 1, 1}, {"d", 1, 1}, {"a", 2, 2}}, {1});
    second.layers[0].points[0] = test::out_of_memory(1);
    const ProfileDiff diff = diff_profiles(first, second);
    REQUIRE(diff.layers.size() == 1);
    CHECK(diff.layers[0].name == "a");
    CHECK(diff.only_first == Names{"b", "c"});
    CHECK(diff.only_second == Names{"d"});
  }

  TEST_CASE("imported times have no spread: only equal ones agree") {
    Profile first = make_profile({{"a", 1, 1}}, {1});
    for (TimeStat* time : {&first.layers[0].points[0].forward, &first.layers[0].points[0].backward})
      *time = {time->median, {}, {}, 0};
    Profile second = first;
    CHECK(diff_profiles(first, second).layers[0].within_spread);
    second.layers[0].points[0].forward.median *= 1.01;
    CHECK_FALSE(diff_profiles(first, second).layers[0].within_spread);
  }

  TEST_CASE("a size that is not in both is refused with the sizes") {
    const Profile first = make_profile({{"a", 1, 1}}, {1, 2});
    const Profile second = make_profile({{"a", 1, 1}}, {4});
    CHECK_THROWS_WITH_AS(diff_profiles(first, second),
                         "the profiles have no micro-batch size in common: [1, 2] and [4]; profile one of them "
                         "at a size of the other",
                         Error);
    CHECK_THROWS_WITH_AS(diff_profiles(first, second, 4),
                         "--micro-batch-size: 4 was not measured; use one of [1, 2]", Error);
  }

  TEST_CASE("as JSON, a layer without a ratio has none") {
    const Profile first = make_profile({{"a", 0, 0}}, {1});
    const Profile second = make_profile({{"a", 1, 1}}, {1});
    const Json json = to_json(diff_profiles(first, second));
    CHECK(json["micro_batch_size"] == 1);
    CHECK(
        json["layers"][0].dump() ==
        R"({"name":"a","first_s":0.0,"second_s":0.002,"within_spread":false,"first_bytes":0,"second_bytes":0})");
    CHECK(json["total"]["second_s"] == 0.002);
    CHECK(json["median_change"] == 0.0);
  }
}

}  // namespace pp::profile
