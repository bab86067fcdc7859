#include "libplan/peers/dnn_partitioning.h"

#include <nlohmann/json.hpp>

#include "tests/libprofile/core/error_text.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/peers/dnn_partitioning_json");

namespace pp::plan::dnn_partitioning_json_test {
namespace {

Json node(int id, int color, bool backward, double ms, double size) {
  return {{"id", id},
          {"colorClass", color},
          {"isBackwardNode", backward ? 1 : 0},
          {"fpgaLatency", ms},
          {"cpuLatency", 99},
          {"size", size},
          {"supportedOnFpga", 1},
          {"name", "any"}};
}

Json edge(int source, int dest, double cost) {
  return {{"sourceId", source}, {"destId", dest}, {"cost", cost}, {"size", 1}};
}

/// Two layers 5 -> 7, backward twins 15 and 17; `backward` is the edge between those.
Json graph(const Json& backward) {
  return {{"maxSizePerFPGA", 1000.0},
          {"maxFPGAs", 6},
          {"maxCPUs", 1},
          {"nodes",
           {node(17, 2, true, 8, 40), node(7, 2, false, 4, 30), node(5, 1, false, 1, 10),
            node(15, 1, true, 2, 20)}},
          {"edges", {edge(5, 7, 0.5), backward}}};
}

Profile import(const Json& json) { return import_dnn_partitioning(json.dump(), "g", 4); }

std::string refusal(const Json& json) {
  return pp::test::error_of([&] { import(json); });
}

}  // namespace

TEST_CASE("twins become one layer: ms to seconds, sizes summed, the order of the forward edges") {
  const Profile profile = import(graph(edge(17, 15, 0.25)));
  REQUIRE(profile.layers.size() == 2);
  CHECK(profile.layers[0].name == "node5");
  CHECK(profile.layers[1].name == "node7");
  CHECK(profile.model.layers[1].inputs == std::vector<std::string>{"node5"});
  const LayerPoint& first = profile.layers[0].points.front();
  CHECK(first.micro_batch_size == 4);
  CHECK(first.forward.median.count() == 0.001);
  CHECK(first.backward.median.count() == 0.002);
  CHECK(first.saved == Bytes(30));
  CHECK(first.transfer->count() == 0.0005);
  CHECK(first.gradient_transfer->count() == 0);
  const LayerPoint& second = profile.layers[1].points.front();
  CHECK(second.transfer->count() == 0);
  CHECK(second.gradient_transfer->count() == 0.00025);  // against the forward edge: to its producer
  CHECK(profile.device.memory == Bytes(1000));
}

TEST_CASE("flags may be written as true and false") {
  Json json = graph(edge(17, 15, 0.25));
  const Profile numbers = import(json);
  for (Json& each : json["nodes"]) {
    for (const char* key : {"isBackwardNode", "supportedOnFpga"}) each[key] = each[key] == 1;
  }
  CHECK(import(json) == numbers);
  json["nodes"][1]["supportedOnFpga"] = false;
  CHECK(refusal(json) == "/nodes/1: node 7 does not run on accelerators, and only those are planned for");
  json["nodes"][1]["supportedOnFpga"] = "yes";
  CHECK(refusal(json) == "/nodes/1/supportedOnFpga: must be true or false, or 1 or 0");
}

TEST_CASE("backward edges along the forward ones are moved to the same readers") {
  const Profile profile = import(graph(edge(15, 17, 0.25)));
  CHECK(profile.layers[0].points.front().transfer->count() == 0.00075);
  CHECK(profile.layers[1].points.front().gradient_transfer->count() == 0);
}

TEST_CASE("an imported profile is a document like any other") {
  const Profile profile = import(graph(edge(17, 15, 0.25)));
  CHECK(parse_profile(dump_json(to_json(profile))) == profile);
}

TEST_CASE("what is wrong is refused with its pointer") {
  const Json good = graph(edge(17, 15, 0.25));
  Json bad = good;
  bad["nodes"][1]["id"] = 17;
  CHECK(refusal(bad) == "/nodes/1/id: node 17 stands twice");
  bad = good;
  bad["edges"][1]["destId"] = 4;
  CHECK(refusal(bad) == "/edges/1/destId: the file has no node 4");
  bad = good;
  bad["nodes"][2]["fpgaLatency"] = -1;
  CHECK(refusal(bad).starts_with("/nodes/2/fpgaLatency: "));
  bad = good;
  bad["nodes"][2]["supportedOnFpga"] = 0;
  CHECK(refusal(bad) == "/nodes/2: node 5 does not run on accelerators, and only those are planned for");
  bad = good;
  bad["edges"].push_back(edge(5, 7, 0.75));
  CHECK(refusal(bad) ==
        "/edges/2/cost: the edges of node 5 have unequal costs, but each is to be a transfer of its whole "
        "output");
  bad = good;
  bad["edges"].push_back(edge(7, 5, 1));
  CHECK(refusal(bad) == "node node7 is on a cycle, or behind one");
  bad = good;
  bad["nodes"].push_back(node(9, 3, false, 1, 1));
  bad["nodes"].push_back(node(19, 3, true, 1, 1));
  bad["edges"].push_back(edge(19, 17, 1));
  CHECK(refusal(bad) ==
        "node 19 has an edge without a forward edge beside it; its backward edges must all run along, or all "
        "against, forward ones");
  bad = good;
  bad["nodes"].push_back(node(19, 3, true, 1, 1));
  CHECK(refusal(bad) == "a colorClass has backward nodes only; every layer needs a forward node");
  CHECK(refusal({{"nodes", Json::array()}, {"edges", Json::array()}}) == "the graph has no layer");
  CHECK(refusal({{"nodes", 1}}) == "/nodes: must be an array");
}

}  // namespace pp::plan::dnn_partitioning_json_test

TEST_SUITE_END();
