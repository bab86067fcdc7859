#include "libplan/peers/piper_json.h"

#include <nlohmann/json.hpp>

#include "tests/libprofile/core/error_text.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/peers/piper_json");

namespace pp::plan::piper_json_test {
namespace {

Json variant(double time, double saved, const Json& forward_sync = Json::object()) {
  return {
      {"id", "any"},         {"timePerSample", time},      {"parameterSize", 40},       {"memoryUsageA", saved},
      {"memoryUsageB", 120}, {"syncTimeFw", forward_sync}, {"syncTimeBw", {{"2", 5.0}}}};
}

/// 1 -> 2; the second can be recomputed, and wants 3 bytes of synchronisation with the first.
Json graph() {
  return {{"maxMemoryPerDevice", 1e6},
          {"bandwidth", 1e9},
          {"mbsInBatch", 8},
          {"nodes",
           {{{"id", 1}, {"TMPCs", {{"1", {variant(3, 10)}}, {"2", {variant(2, 5)}}}}},
            {{"id", 2}, {"TMPCs", {{"1", {variant(8, 2), variant(6, 20, {{"1", 3.0}})}}}}}}},
          {"edges", {{{"sourceId", 1}, {"destId", 2}, {"communicationCost", 100.0}}}}};
}

Profile import(const Json& json, TimeUnit unit = TimeUnit::ms) {
  return import_piper(json.dump(), "g", 1, unit);
}

std::string refusal(const Json& json) {
  return pp::test::error_of([&] { import(json); });
}

}  // namespace

TEST_CASE("degree 1: the fastest variant is the plain one, the smallest the recomputed one") {
  const Profile profile = import(graph());
  REQUIRE(profile.layers.size() == 2);
  const PiperLayer& first = *profile.layers[0].piper;
  CHECK(first.plain == PiperVariant{Seconds(0.003), Bytes(10), Bytes(120)});
  CHECK_FALSE(first.recompute.has_value());
  const PiperLayer& second = *profile.layers[1].piper;
  CHECK(second.plain == PiperVariant{Seconds(0.006), Bytes(20), Bytes(120)});
  CHECK(second.recompute->time == Seconds(0.008));
  CHECK(second.recompute->saved == Bytes(2));
  CHECK(second.incoming.at("node1") == Bytes(103));  // 100 + 3 of the reader, at its end
  CHECK(first.outgoing.at("node2") == Bytes(105));   // 100 + 5 of the producer, at its own
  CHECK(profile.layers[0].parameters == Bytes(40));
  CHECK(profile.layers[0].points.front().output == Bytes(100));
  CHECK(profile.device.memory == Bytes(1'000'000));
  CHECK(profile.context.at("mbsInBatch") == "8");
}

TEST_CASE("what is imported can be read, at the largest values too") {
  constexpr double kMost = 1e15;  // bytes, as every reader of documents has it
  for (const char* key : {"parameterSize", "memoryUsageA", "memoryUsageB", "timePerSample"}) {
    Json json = graph();
    json["nodes"][0]["TMPCs"]["1"][0][key] = kMost;
    const Profile profile = import(json);
    CHECK(parse_profile(dump_json(to_json(profile))) == profile);
    json["nodes"][0]["TMPCs"]["1"][0][key] = key == std::string("timePerSample") ? 1e31 : 2 * kMost;
    CHECK(refusal(json).starts_with("/nodes/0/TMPCs/1/0/" + std::string(key)));
  }
  // An output may have 2^40 bytes, and what an edge is charged at its ends comes on top of it.
  constexpr double kOutput = 1'099'511'627'776;
  Json json = graph();
  json["edges"][0]["communicationCost"] = kOutput;
  CHECK_NOTHROW(parse_profile(dump_json(to_json(import(json)))));
  json["edges"][0]["communicationCost"] = kOutput + 1;
  CHECK(refusal(json) ==
        "/layers/0/attributes/output_bytes: must be an integer from 0 to "
        "1099511627776, not 1099511627777");
  json = graph();
  json["nodes"][1]["TMPCs"]["1"][1]["syncTimeFw"]["1"] = kMost;
  CHECK(refusal(json) ==
        "the imported profile: /layers/1/piper/incoming/0/bytes: must be an integer from 0 to "
        "1000000000000000, not "
        "1000000000000100");
}

TEST_CASE(
    "higher tensor degrees keep their own variants, weights and edges; degrees without a variant are none") {
  Json json = graph();
  Json& degrees = json["nodes"][0]["TMPCs"];
  degrees["2"].push_back(variant(4, 3));
  degrees["2"][0]["parameterSize"] = 20;
  degrees["2"][0]["syncTimeBw"]["2"] = 7.0;
  degrees["8"] = Json::array();
  const Profile profile = import(json);
  const PiperLayer& layer = *profile.layers[0].piper;
  REQUIRE(layer.tensor.size() == 1);
  const PiperShare& pair = layer.tensor.front();
  CHECK(pair.degree == 2);
  CHECK(pair.parameters == Bytes(20));
  CHECK(pair.plain == PiperVariant{Seconds(0.002), Bytes(5), Bytes(120)});
  CHECK(pair.recompute == PiperVariant{Seconds(0.004), Bytes(3), Bytes(120)});
  CHECK(pair.outgoing.at("node2") == Bytes(107));
  CHECK(profile.layers[1].piper->tensor.empty());
  CHECK(parse_profile(dump_json(to_json(profile))) == profile);
  degrees["two"] = degrees["2"];
  CHECK(refusal(json) == "/nodes/0/TMPCs/two: is no tensor-parallel degree; give a number of devices");
}

TEST_CASE("times are read in the unit that is given") {
  CHECK(import(graph(), TimeUnit::s).layers[0].piper->plain.time == Seconds(3));
}

TEST_CASE("an imported profile is a document like any other") {
  const Profile profile = import(graph());
  CHECK(parse_profile(dump_json(to_json(profile))) == profile);
}

TEST_CASE("what is wrong is refused with its pointer") {
  Json bad = graph();
  bad["nodes"][1]["id"] = 1;
  CHECK(refusal(bad) == "/nodes/1/id: node 1 stands twice");
  bad = graph();
  bad["nodes"][0]["TMPCs"].erase("1");
  CHECK(refusal(bad) == "/nodes/0/TMPCs/1: is missing: no variant without tensor parallelism");
  bad = graph();
  bad["nodes"][0]["TMPCs"]["1"] = Json::array();
  CHECK(refusal(bad) == "/nodes/0/TMPCs/1: lists no variant");
  bad = graph();
  bad["edges"][0]["destId"] = "x";
  CHECK(refusal(bad) == "/edges/0/destId: the file has no node x");
  bad = graph();
  bad["edges"].push_back({{"sourceId", 2}, {"destId", 1}, {"communicationCost", 1}});
  CHECK(refusal(bad) == "node node1 is on a cycle, or behind one");
  CHECK(refusal({{"nodes", Json::array()}, {"edges", Json::array()}}) == "the graph has no layer");
}

}  // namespace pp::plan::piper_json_test

TEST_SUITE_END();
