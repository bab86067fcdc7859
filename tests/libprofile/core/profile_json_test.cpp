#include <nlohmann/json.hpp>

#include "libprofile/core/profile.h"
#include "libprofile/model/families/families.h"
#include "tests/libprofile/core/error_text.h"
#include "tests/libprofile/core/golden.h"
#include "tests/support/doctest.h"

namespace profile_json_test {

using namespace pp;
using pp::test::golden;

namespace {

TimeStat stat(double median) { return {Seconds(median), Seconds(median * 0.5), Seconds(median * 2), 40}; }

LayerPoint point(std::int64_t size, double seconds) {
  LayerPoint point;
  point.micro_batch_size = size;
  point.forward = stat(seconds);
  point.backward = stat(2 * seconds);
  point.input_gradient = stat(seconds);
  point.weight_gradient = stat(seconds);
  point.output = Bytes(8 * size);
  point.saved = Bytes(16 * size);
  point.saved_input = Bytes(16 * size);
  return point;
}

LayerPoint out_of_memory(std::int64_t size) {
  LayerPoint point;
  point.micro_batch_size = size;
  point.out_of_memory = true;
  return point;
}

/// One linear layer with a loss at sizes 1 and 4; the layer did not fit at 4. Times are powers of two, so that
/// they print short.
Profile small_profile() {
  Profile profile;
  profile.context = {{"host", "desk"}, {"tool", "pp-profile 0.1.0"}};
  profile.model = model::build_family("mlp:inputs=4,layers=1,classes=2");
  profile.model_hash = model_hash(profile.model);
  profile.device = {DeviceKind::cpu, "a processor", 1, 2, Bytes(1 << 30)};
  profile.micro_batch_sizes = {1, 4};
  profile.layers = {{"fc1", 10, Bytes(40), Bytes(0), Flops(18), {point(1, 0.25), out_of_memory(4)}}};
  profile.loss =
      LayerProfile{"cross_entropy", 0, Bytes(0), Bytes(0), Flops(10), {point(1, 0.125), point(4, 0.25)}};
  profile.whole_model = {{1, stat(0.5), stat(1), Bytes(4096)}};
  profile.optimizers = {{"sgd", 0, stat(0.0625), Bytes(40), {{Bytes(8), stat(0.03125)}}}};
  profile.operation_overhead = OperationOverhead{stat(0.0078125), stat(0.015625)};
  profile.estimated = {"input_gradient_s"};
  return profile;
}

template <class Change>
std::string refused(Change change) {
  Json json = parse_json(golden("small.profile.json"));
  change(json);
  return test::error_text([&] { return profile_from_json(json); });
}

}  // namespace

TEST_SUITE("libprofile/core/profile_json") {
  TEST_CASE("a profile is the golden file, byte for byte, both ways") {
    const Profile profile = small_profile();
    CHECK(dump_json(to_json(profile)) == golden("small.profile.json"));
    CHECK((parse_profile(golden("small.profile.json")) == profile));
    CHECK((parse_profile(dump_json_compact(to_json(profile))) == profile));
  }

  TEST_CASE("a profile of another planner may lack spread, split, loss and whole model") {
    Profile profile = small_profile();
    profile.mode = ProfileMode::imported;
    profile.micro_batch_sizes = {1};
    profile.layers[0].points = {{.micro_batch_size = 1,
                                 .forward = {.median = Seconds(1)},
                                 .backward = {.median = Seconds(2)},
                                 .input_gradient = {},
                                 .weight_gradient = {},
                                 .output = {},
                                 .saved = {},
                                 .saved_input = {},
                                 .workspace = {}}};
    profile.loss.reset();
    profile.whole_model.clear();
    profile.optimizers.clear();
    CHECK((parse_profile(dump_json(to_json(profile))) == profile));
  }

  TEST_CASE("times of first micro-batches, of parts and of new versions are kept where they were measured") {
    Profile profile = small_profile();
    profile.optimizers[0].new_version = UpdatePoint{Bytes(20), stat(0.125)};
    LayerPoint& point = profile.layers[0].points[0];
    point.first = LayerTimes{stat(0.5), stat(0.25), stat(0), stat(1)};
    point.in_part = without_spread(Seconds(0.125), Seconds(2), Seconds(4), Seconds(8));
    point.alone = without_spread(Seconds(0.25), Seconds(3), Seconds(5), Seconds(7));
    const Json json = to_json(profile);
    CHECK(json["layers"][0]["points"][0]["first"]["weight_gradient_s"]["samples"] == stat(1).samples);
    CHECK(json["layers"][0]["points"][0]["in_part"]["input_gradient_s"] == 4);  // as older documents have it
    CHECK(json["layers"][0]["points"][0]["alone"]["weight_gradient_s"] == 7);
    CHECK_FALSE(json["loss"]["points"][0].contains("first"));
    CHECK((parse_profile(dump_json(json)) == profile));
    CHECK(refused([](Json& j) {
            j["layers"][0]["points"][0]["first"] = {{"forward_s", 1}};
          }) == "[data] /layers/0/points/0/first/backward_s: missing; add this key, an object");
  }

  TEST_CASE("an autocast is written where there is one, and is of float32 weights") {
    Profile profile = small_profile();
    CHECK_FALSE(to_json(profile).contains("autocast"));
    const std::string hash = profile_hash(profile);
    profile.autocast = Autocast::float16;
    CHECK(to_json(profile)["autocast"] == "float16");
    CHECK((parse_profile(dump_json(to_json(profile))) == profile));
    CHECK(profile_hash(profile) != hash);
    CHECK(refused([](Json& j) {
            j["autocast"] = "bfloat16";
            j["dtype"] = "bfloat16";
          }) ==
          "[data] /autocast: casts products of float32 weights, and dtype is bfloat16; write float32, or leave "
          "it "
          "out");
  }

  TEST_CASE("a memory format is written where it is not contiguous, and changes the hash") {
    Profile profile = small_profile();
    CHECK_FALSE(to_json(profile).contains("memory_format"));
    const std::string before = profile_hash(profile);
    profile.memory_format = MemoryFormat::channels_last;
    CHECK(to_json(profile)["memory_format"] == "channels_last");
    CHECK((parse_profile(dump_json(to_json(profile))) == profile));
    CHECK(profile_hash(profile) != before);
  }

  TEST_CASE("a tensor degree is written where it is not 1, and is at least 1") {
    Profile profile = small_profile();
    CHECK_FALSE(to_json(profile).contains("tensor_degree"));
    profile.tensor_degree = 4;
    CHECK(to_json(profile)["tensor_degree"] == 4);
    CHECK((parse_profile(dump_json(to_json(profile))) == profile));
    CHECK(refused([](Json& j) { j["tensor_degree"] = 0; }) ==
          "[data] /tensor_degree: must be an integer from 1 to 2147483647, not 0");
    CHECK(refused([](Json& j) {
            j["products"] = "float8";
          }).starts_with("[data] /products: are of a narrow type beside bfloat16 alone, and dtype is float32"));
    CHECK(refused([](Json& j) {
            j["context_parallel"] = {{"degree", 1}, {"sum_s_per_byte", 0}};
          }).starts_with("[data] /context_parallel/degree: must be an integer from 2 "));
  }

  TEST_CASE("the hash changes with any time") {
    Profile profile = small_profile();
    const std::string before = profile_hash(profile);
    profile.layers[0].points[0].forward.high += Seconds(1e-9);
    CHECK(profile_hash(profile) != before);
  }

  TEST_CASE("a model that was changed after profiling is refused") {
    const std::string actual = [] {
      ModelGraph graph = small_profile().model;
      graph.name = "mlp2";
      return model_hash(graph);
    }();
    CHECK(refused([](Json& j) { j["model"]["name"] = "mlp2"; }) ==
          "[data] /model_hash: is " + small_profile().model_hash + ", but the model in this file has " +
              actual + "; the model was changed after profiling, profile it again");
  }

  TEST_CASE("a profile without the model's hash has that of its model") {
    Json json = to_json(small_profile());
    json.erase("model_hash");
    CHECK((parse_profile(dump_json(json)) == small_profile()));
  }

  TEST_CASE("the layers must be those of the model") {
    CHECK(refused([](Json& j) { j["layers"].push_back(j["layers"][0]); }) ==
          "[data] /layers: has 2 entries, but the model has 1 layers; profile the model again");
    CHECK(
        refused([](Json& j) { j["layers"][0]["name"] = "fc2"; }) ==
        "[data] /layers: entry 0 is \"fc2\", but that layer of the model is \"fc1\"; profile the model again");
  }

  TEST_CASE("every layer has a point per size") {
    CHECK(refused([](Json& j) { j["layers"][0]["points"].erase(1); }) ==
          "[data] /layers/0/points: must have one entry per size in /micro_batch_sizes, [1, 4], in that order");
    CHECK(refused([](Json& j) {
            j["micro_batch_sizes"] = {4, 1};
          }) == "[data] /micro_batch_sizes: [4, 1] must hold at least one size, ascending, each once");
    CHECK(refused([](Json& j) { j["micro_batch_sizes"] = Json::array(); }) ==
          "[data] /micro_batch_sizes: [] must hold at least one size, ascending, each once");
  }

  TEST_CASE("numbers that cannot be are refused where they stand") {
    CHECK(refused([](Json& j) { j["layers"][0]["points"][0]["forward_s"]["low"] = 1; }) ==
          "[data] /layers/0/points/0/forward_s/median: must lie between low and high");
    CHECK(refused([](Json& j) { j["layers"][0]["points"][0]["saved_input_bytes"] = 17; }) ==
          "[data] /layers/0/points/0/saved_input_bytes: must be an integer from 0 to 16, not 17");
    CHECK(refused([](Json& j) { j["layers"][0]["points"][0]["forward_s"]["median"] = -1; }) ==
          "[data] /layers/0/points/0/forward_s/median: must be a number from 0.0 upwards, not -1");
    CHECK(refused([](Json& j) { j["layers"][0]["points"][1]["output_bytes"] = 1; }) ==
          "[data] /layers/0/points/1/output_bytes: unknown key; use one of micro_batch_size, out_of_memory");
    CHECK(refused([](Json& j) {
            j["model"]["layers"][0]["op"] = "linear2";
          }).starts_with("[data] /model/layers/0/op: unknown operation"));
    CHECK(refused([](Json& j) { j["device"]["kind"] = "tpu"; }) ==
          "[data] /device/kind: unknown name \"tpu\"; did you mean cpu? Use one of cpu, cuda");
  }
}

TEST_SUITE("libprofile/core/profile") {
  TEST_CASE("the sum of the layers is set against the whole model") {
    Profile profile = small_profile();
    // Size 1: layer 0.25 + 0.5, loss 0.125 + 0.25, together 1.125; the whole model 0.5 + 1.
    CHECK(layer_sum_ratio(profile, 1) == 0.75);
    CHECK(!layer_sum_ratio(profile, 4).has_value());  // no whole model at 4
    profile.whole_model.push_back({4, stat(1), stat(1), Bytes(0)});
    CHECK(!layer_sum_ratio(profile, 4).has_value());  // a layer did not fit at 4
    profile.loss.reset();
    CHECK(layer_sum_ratio(profile, 1) == 0.5);
  }
}

}  // namespace profile_json_test
