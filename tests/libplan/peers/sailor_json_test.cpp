#include "libplan/peers/sailor_json.h"

#include <nlohmann/json.hpp>

#include "tests/libplan/search/profiles.h"
#include "tests/libprofile/core/error_text.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/peers/sailor_json");

namespace pp::plan::sailor_json_test {
namespace {

/// tokens, positions, block0.a, block0.b, block1.a, head at sizes 1 and 2: four layers of Sailor's.
Profile sizes() {
  Profile profile = test::make_profile({{{1, 1, 100, 8, 10, 4, 1},
                                         {1, 1, 50, 8, 20, 8, 2},
                                         {1, 1, 30, 16, 30, 8, 3},
                                         {1, 1, 30, 8, 40, 16, 9},
                                         {1, 1, 60, 8, 50, 8, 4},
                                         {1, 1, 100, 4, 60, 8, 5}},
                                        {},
                                        {1, 2}});
  const char* names[] = {"tokens", "positions", "block0.a", "block0.b", "block1.a", "head"};
  for (std::size_t l = 0; l < profile.layers.size(); ++l) {
    profile.layers[l].name = profile.model.layers[l].name = names[l];
    if (l > 0) profile.model.layers[l].inputs = {names[l - 1]};
  }
  profile.tensor_degree = 4;
  return profile;
}

/// Layers of so many milliseconds forward, twice that backward; an update of 1 ms each.
Json layers(const std::vector<double>& forward, double update = 0.001) {
  Json json = Json::object();
  for (std::size_t l = 0; l < forward.size(); ++l)
    json[std::to_string(l)] = {forward[l] * 1e-3, forward[l] * 2e-3, update};
  return json;
}

Json file() {
  return {{"net/fast",
           {{"1", {{"4", layers({1, 2, 3, 4})}, {"2", layers({9, 9, 9, 9})}}},
            {"2", {{"4", layers({2, 3, 5, 7})}}},
            {"8", {{"4", layers({8, 8, 8, 8})}}}}},
          {"net/short", {{"1", {{"4", layers({1, 2, 3})}}}}},
          {"net/idle", {{"1", {{"4", layers({1, 2, 3, 4}, 0)}}}}},
          {"other/fast", {{"1", {{"4", layers({1, 2, 3})}}}}}};
}

std::string refusal(const Json& json, const std::string& entry, const Profile& profile = sizes()) {
  return pp::test::error_of([&] { import_sailor(json.dump(), entry, profile); });
}

}  // namespace

TEST_CASE("times are the entry's, bytes those of the layers that are one of its own") {
  const Profile profile = import_sailor(file().dump(), "net/fast", sizes());
  CHECK(profile.model.name == "net");
  CHECK(profile.device.name == "fast");
  CHECK(profile.tensor_degree == 4);
  CHECK(profile.micro_batch_sizes == std::vector<std::int64_t>{1, 2});  // 8 is not in the sizes
  REQUIRE(profile.layers.size() == 4);
  const LayerProfile& embedding = profile.layers[0];
  CHECK(embedding.parameters == Bytes(150));
  CHECK(embedding.points[0].saved == Bytes(30));
  CHECK(embedding.points[0].saved_input == Bytes(4));
  const LayerProfile& block = profile.layers[1];
  CHECK(block.parameters == Bytes(60));
  CHECK(block.points[1].forward.median.count() == doctest::Approx(0.003));
  CHECK(block.points[1].backward.median.count() == doctest::Approx(0.006));
  CHECK(block.points[1].saved == Bytes(140));     // 2 (30 + 40)
  CHECK(block.points[1].output == Bytes(16));     // of block0.b
  CHECK(block.points[1].workspace == Bytes(18));  // the larger, of block0.b
  CHECK(profile.layers[3].points[0].forward.median.count() == doctest::Approx(0.004));
  REQUIRE(profile.optimizers.size() == 1);
  CHECK(profile.optimizers[0].update.median.count() == doctest::Approx(0.004));  // 1 ms of each
  CHECK(profile.optimizers[0].parameters == Bytes(370));
}

TEST_CASE("an update of no time was not measured") {
  const Profile profile = import_sailor(file().dump(), "net/idle", sizes());
  CHECK(profile.optimizers.empty());
  CHECK(profile.estimated.back() == "update_s");
}

TEST_CASE("incomplete entries are refused with what is missing") {
  CHECK(refusal(file(), "net/short") ==
        "net/short has 3 layers at micro-batch size 1, net/fast has 4: layers 3 to 3 are missing; import an "
        "entry that is complete");
  CHECK(refusal(file(), "other/fast") ==
        "other/fast has 3 layers at micro-batch size 1, --sizes is of 4 (before its blocks, each block, behind "
        "them); give a profile of the same model");
  CHECK(refusal(file(), "net/slow") ==
        "has no entry \"net/slow\"; it has net/fast, net/short, net/idle, other/fast");
  Profile eight = sizes();
  eight.tensor_degree = 8;
  CHECK(refusal(file(), "net/idle", eight) ==
        "net/idle has no micro-batch size of 1, 2 at tensor degree 8, which are those of --sizes; it has 1 at "
        "4");
  Json gap = file();
  gap["net/fast"]["1"]["4"].erase("2");
  CHECK(refusal(gap, "net/fast") == "/net~1fast/1/4: layer 2 is missing; 3 others are there");
  Json text = file();
  text["net/fast"]["1"]["4"]["1"] = {0.1, -1, 0};
  CHECK(refusal(text, "net/fast").starts_with("/net~1fast/1/4/1/1: "));
  text["net/fast"]["1"]["4"]["1"] = {0.1};
  CHECK(refusal(text, "net/fast") ==
        "/net~1fast/1/4/1: must be forward, backward and update, three times in seconds");
}

}  // namespace pp::plan::sailor_json_test

TEST_SUITE_END();
