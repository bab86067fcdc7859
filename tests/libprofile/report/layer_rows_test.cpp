#include "libprofile/report/layer_rows.h"

#include "tests/libprofile/report/profiles.h"

#include "tests/support/doctest.h"

namespace pp::profile::layer_rows_test {
namespace {

using test::make_profile;

std::vector<std::string> names(const std::vector<LayerRow>& rows) {
  std::vector<std::string> names;
  for (const LayerRow& row : rows) names.push_back(row.layer->name);
  return names;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_SUITE("libprofile/report/layer_rows") {
  TEST_CASE("rows are sorted by time or by memory, the loss counts, equals keep the model's order") {
    // At size 2: 6, 6, 12 ms and 8, 100 + 2, 20 bytes; the loss 9 ms, 0 bytes.
    Profile profile = make_profile({{"a", 1, 2, 0, 4}, {"b", 2, 1, 100, 1}, {"c", 3, 3, 0, 10}}, {1, 2});
    LayerProfile& loss = profile.loss.emplace();
    loss.name = "loss";
    loss.points.resize(2);
    loss.points[1].forward.median = Seconds(9e-3);
    CHECK(names(layer_rows(profile, 1, LayerOrder::model)) == Names{"a", "b", "c", "loss"});
    CHECK(names(layer_rows(profile, 1, LayerOrder::time)) == Names{"c", "loss", "a", "b"});
    CHECK(names(layer_rows(profile, 1, LayerOrder::memory)) == Names{"b", "c", "a", "loss"});
    const auto rows = layer_rows(profile, 1, LayerOrder::model);
    CHECK(total_time(rows).count() == doctest::Approx(33e-3));
    CHECK(total_memory(rows) == Bytes(130));
  }

  TEST_CASE("the largest size is meant unless another is wanted, and it must have been measured") {
    const Profile profile = make_profile({{"a", 1, 1}}, {1, 4, 8});
    CHECK(size_position(profile, std::nullopt) == 2);
    CHECK(size_position(profile, 4) == 1);
    CHECK_THROWS_WITH_AS(size_position(profile, 2),
                         "--micro-batch-size: 2 was not measured; use one of [1, 4, 8]", Error);
  }
}

}  // namespace pp::profile::layer_rows_test
