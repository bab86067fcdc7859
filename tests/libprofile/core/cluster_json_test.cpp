#include <nlohmann/json.hpp>

#include "libprofile/core/cluster.h"
#include "tests/libprofile/core/error_text.h"
#include "tests/libprofile/core/golden.h"
#include "tests/support/doctest.h"
#include "tests/support/schema.h"

namespace cluster_json_test {

using namespace pp;
using pp::test::golden;

namespace {

/// Two nodes of two devices, the inner link measured.
Cluster two_nodes() {
  Cluster cluster;
  cluster.context = {{"tool", "pp-profile 0.1.0"}};
  cluster.measured = true;
  for (int i = 0; i < 4; ++i) {
    cluster.devices.push_back({.id = DeviceId{i},
                               .kind = DeviceKind::cpu,
                               .index = i % 2,
                               .cores = {i % 2},
                               .node = i < 2 ? "a" : "b",
                               .memory = Bytes(1 << 30),
                               .speed = 1.0});
  }
  cluster.devices[3] = {.id = DeviceId{3},
                        .kind = DeviceKind::cuda,
                        .index = 0,
                        .cores = {},
                        .node = "b",
                        .memory = Bytes(1 << 30),
                        .speed = 2.5};
  const TimeStat time{Seconds(0.5), Seconds(0.25), Seconds(1), 20};
  cluster.levels = {
      {"node", 2, BytesPerSecond(2.5e10), Seconds(5e-6), 0.125, {{Bytes(1024), time}, {Bytes(65536), time}}},
      {"cluster", 4, BytesPerSecond(1.25e9), Seconds(3e-5), 0, {}}};
  return cluster;
}

template <class Change>
std::string refused(Change change) {
  Json json = parse_json(golden("two_nodes.cluster.json"));
  change(json);
  return test::error_text([&] { return cluster_from_json(json); });
}

}  // namespace

TEST_SUITE("libprofile/core/cluster_json") {
  TEST_CASE("a cluster is the golden file, byte for byte, both ways") {
    CHECK(dump_json(to_json(two_nodes())) == golden("two_nodes.cluster.json"));
    CHECK((parse_cluster(golden("two_nodes.cluster.json")) == two_nodes()));
  }

  TEST_CASE("a person writes ids, kinds and bandwidths only") {
    const Cluster cluster = parse_cluster(R"({"format": "pp.cluster", "version": 1,
      "devices": [{"id": 0, "kind": "cuda"}, {"id": 1, "kind": "cuda"}],
      "levels": [{"name": "node", "devices": 2, "bandwidth_bytes_per_s": 1e9}]})");
    Cluster expected = flat_cluster(2, DeviceKind::cuda, BytesPerSecond(1e9), Seconds(0), Bytes(0));
    expected.levels[0].name = "node";
    CHECK((cluster == expected));
    CHECK(to_text(cluster.devices[1]) == "cuda:1");
    CHECK(cluster_hash(cluster) == cluster_hash(expected));
  }

  TEST_CASE("a speed that no device has, of which times of plans would become too large to read") {
    CHECK(refused([](Json& j) { j["devices"][1]["speed"] = 1e-300; }) ==
          "[data] /devices/1/speed: must be a number from 1e-06 to 1000000.0, not 1e-300");
    CHECK(refused([](Json& j) { j["devices"][1]["speed"] = 1e7; }) ==
          "[data] /devices/1/speed: must be a number from 1e-06 to 1000000.0, not 10000000.0");
  }

  TEST_CASE("devices are numbered in their order") {
    CHECK(refused([](Json& j) { j["devices"][1]["id"] = 7; }) ==
          "[data] /devices: entry 1 has id 7; number the devices 0, 1, 2, ... in their order");
    CHECK(refused([](Json& j) { j["devices"] = Json::array(); }) ==
          "[data] /devices: is empty; a cluster needs at least one device");
  }

  TEST_CASE("levels count cumulatively and join all devices") {
    CHECK(refused([](Json& j) { j["levels"][1]["devices"] = 3; }) ==
          "[data] /levels: entry 1 has groups of 3 devices, not a multiple of the 2 inside it; count "
          "cumulatively, from the innermost level outwards, with the last group as if it were full");
    CHECK(refused([](Json& j) { j["levels"].erase(1); }) ==
          "[data] /levels: the outermost level joins 2 of 4 devices; add a level that joins all of them");
  }

  TEST_CASE("each of unequal nodes begins a group, also where nobody says its slot") {
    // Devices per node, the levels' sizes, and the slots.
    struct Row {
      std::vector<int> nodes, levels, slots;
    };
    const std::vector<Row> rows{{{2, 2}, {2, 4}, {0, 1, 2, 3}},  // as full as can be
                                {{2, 1}, {2, 4}, {0, 1, 2}},     // nothing is behind the node that is not
                                {{1, 2}, {2, 4}, {0, 2, 3}},
                                {{2, 1, 1, 2}, {2, 8}, {0, 1, 2, 4, 6, 7}},
                                {{3, 2}, {2, 6}, {0, 1, 2, 4, 5}},        // pairs within nodes
                                {{2, 2, 2}, {4, 8}, {0, 1, 2, 3, 4, 5}},  // two nodes in a rack
                                {{1, 2, 1}, {2, 4, 8}, {0, 2, 3, 4}}};
    for (const Row& row : rows) {
      CAPTURE(row.slots);
      Cluster cluster;
      for (std::size_t n = 0; n < row.nodes.size(); ++n) {
        for (int i = 0; i < row.nodes[n]; ++i) {
          Device& device = cluster.devices.emplace_back();
          device.id = DeviceId{static_cast<int>(cluster.devices.size()) - 1};
          device.node = node_name(static_cast<int>(n));
        }
      }
      for (const int devices : row.levels)
        cluster.levels.push_back(
            {.name = "l", .devices = devices, .bandwidth = BytesPerSecond(1e9), .samples = {}});
      const Cluster read = cluster_from_json(to_json(cluster));
      std::vector<int> slots;
      for (int d = 0; d < std::ssize(read.devices); ++d) slots.push_back(slot_of(read, d));
      CHECK(slots == row.slots);
      CHECK(cluster_from_json(to_json(read)) == read);
      cluster.measured = true;  // groups are of devices that were found near each other
      CHECK(cluster_from_json(to_json(cluster)) == cluster);
    }
  }

  TEST_CASE("slots that no machine has are refused with the remedy") {
    CHECK(refused([](Json& j) { j["devices"][1]["slot"] = 0; }) ==
          "[data] /devices: entry 1 has slot 0, not above the 0 in front of it");
    CHECK(refused([](Json& j) {
            j["devices"][3]["slot"] = 2'000'000'000;
          }).starts_with("[data] /devices/3/slot: must be an integer from 0 to 65535"));
    CHECK(refused([](Json& j) { j["devices"][3]["slot"] = 4; }) ==
          "[data] /levels: the outermost level joins 4 of 5 devices, counted as if every node were as large as "
          "the largest; its `devices` is at least that");
  }

  TEST_CASE("the context is an object of strings") {
    CHECK(refused([](Json& j) { j["context"]["threads"] = 2; }) ==
          "[data] /context/threads: must be a string, the context is free text");
    CHECK(refused([](Json& j) { j["context"] = "desk"; }) ==
          "[data] /context: must be an object, not \"desk\"");
  }

  TEST_CASE("a level may carry a measured all-reduce") {
    Cluster cluster = two_nodes();
    const Level& inner = cluster.levels[0];
    cluster.levels[1].all_reduce = {BytesPerSecond(5e8), Seconds(1e-4), 0.25, inner.samples};
    CHECK(parse_cluster(dump_json(to_json(cluster))) == cluster);
    CHECK(refused([](Json& j) { j["levels"][1]["all_reduce"] = Json::object(); }) ==
          "[data] /levels/1/all_reduce/bandwidth_bytes_per_s: missing; add this key, a number above 0");
  }

  TEST_CASE("an all-reduce may leave the caches, for what is slower") {
    Cluster cluster = two_nodes();
    MeasuredAllReduce& sums = cluster.levels[1].all_reduce.emplace();
    sums.bandwidth = BytesPerSecond(5e8);
    CHECK_FALSE(to_json(cluster)["levels"][1]["all_reduce"].contains("cached_bytes"));
    sums.cached = Bytes(12'000'000);
    sums.beyond = BytesPerSecond(1e8);
    const Json json = to_json(cluster)["levels"][1]["all_reduce"];
    CHECK(json["cached_bytes"] == 12'000'000);
    CHECK(json["bandwidth_beyond_bytes_per_s"] == 1e8);
    CHECK(parse_cluster(dump_json(to_json(cluster))) == cluster);
    const auto with = [&](const char* key, double value) {
      return refused([&](Json& j) {
        j["levels"][1]["all_reduce"] = json;
        j["levels"][1]["all_reduce"][key] = value;
      });
    };
    CHECK(with("bandwidth_beyond_bytes_per_s", 6e8) ==
          "[data] /levels/1/all_reduce/bandwidth_beyond_bytes_per_s: must be a number above 0, to "
          "500000000.0, not 600000000.0");
    CHECK(with("cached_bytes", -1).starts_with("[data] /levels/1/all_reduce/cached_bytes: must be an integer"));
  }

  TEST_CASE("a level may say what its messages ask of the devices, and leaves out what is usual") {
    Cluster cluster = two_nodes();
    Level& outer = cluster.levels[1];
    outer.message_cost = Seconds(2e-5);
    outer.overlap = 0.25;
    outer.duplex = Duplex::half;
    outer.all_reduce = {BytesPerSecond(5e8), Seconds(1e-4), 0.25, cluster.levels[0].samples, 0.75};
    const Json json = to_json(cluster);
    CHECK(json["levels"][1]["message_cost_s"] == 2e-5);
    CHECK(json["levels"][1]["overlap"] == 0.25);
    CHECK(json["levels"][1]["duplex"] == "half");
    CHECK(json["levels"][1]["all_reduce"]["overlap"] == 0.75);
    CHECK_FALSE(json["levels"][0].contains("message_cost_s"));
    CHECK_FALSE(json["levels"][0].contains("overlap"));
    CHECK_FALSE(json["levels"][0].contains("duplex"));
    CHECK(cluster_from_json(json) == cluster);
    CHECK(cluster_hash(cluster) != cluster_hash(two_nodes()));
  }

  TEST_CASE("the innermost level says how many network cards a node has, where it is not one") {
    Cluster cluster = two_nodes();
    CHECK_FALSE(to_json(cluster)["levels"][0].contains("cards"));
    cluster.levels[0].cards = 2;
    CHECK(to_json(cluster)["levels"][0]["cards"] == 2);
    CHECK(cluster_from_json(to_json(cluster)) == cluster);
    CHECK(refused([](Json& j) { j["levels"][0]["cards"] = 3; }) ==
          "[data] /levels/0/cards: 3 cards do not serve equally many of 2 devices; give a divisor of that "
          "number");
    CHECK(refused([](Json& j) { j["levels"][0]["cards"] = 0; }).starts_with("[data] /levels/0/cards: must be"));
    CHECK(refused([](Json& j) { j["levels"][1]["cards"] = 2; }) ==
          "[data] /levels: entry 1 has 2 cards; they belong to the innermost of several levels, remove them");
  }

  TEST_CASE("a device may say which model it is, and a profile's device has these words in its name, or not") {
    Cluster cluster = two_nodes();
    CHECK_FALSE(to_json(cluster)["devices"][0].contains("model"));
    cluster.devices[0].model = "H100";
    CHECK(to_json(cluster)["devices"][0]["model"] == "H100");
    CHECK(cluster_from_json(to_json(cluster)) == cluster);
    CHECK(pp::test::schema_error("cluster", to_json(cluster)) == "");
    CHECK(refused([](Json& j) {
            j["devices"][0]["model"] = 100;
          }).starts_with("[data] /devices/0/model: must be"));

    for (const char* name : {"NVIDIA H100 80GB HBM3", "NVIDIA H100 SXM5 80 GB, trained by pp-run", "h100"})
      CHECK(names_model(name, "H100"));
    for (const char* name : {"NVIDIA GH100", "NVIDIA H100NVL", "NVIDIA A100-SXM4-80GB", ""})
      CHECK_FALSE(names_model(name, "H100"));
    CHECK(names_model("NVIDIA A100-SXM4-80GB", "A100 80GB"));
    CHECK(names_model("anything", ""));
  }

  TEST_CASE("what messages cannot ask of a device is refused where it stands") {
    CHECK(refused([](Json& j) { j["levels"][0]["message_cost_s"] = -1; }) ==
          "[data] /levels/0/message_cost_s: must be a number from 0.0 upwards, not -1");
    CHECK(refused([](Json& j) { j["levels"][0]["overlap"] = 1.5; }) ==
          "[data] /levels/0/overlap: must be a number from 0.0 to 1.0, not 1.5");
    CHECK(refused([](Json& j) { j["levels"][0]["duplex"] = "both"; }) ==
          "[data] /levels/0/duplex: unknown name \"both\"; use one of full, half");
    CHECK(refused([](Json& j) {
            j["levels"][1]["all_reduce"] = {
                {"bandwidth_bytes_per_s", 1e9}, {"latency_s", 0}, {"fit_residual", 0}, {"overlap", 2}};
          }) == "[data] /levels/1/all_reduce/overlap: must be a number from 0.0 to 1.0, not 2");
  }

  TEST_CASE("one device needs no link") {
    CHECK(refused([](Json& j) {
            j["devices"] = Json::array({j["devices"][0]});
            j["levels"] = Json::array();
          }) == "no error");
  }

  TEST_CASE("numbers that cannot be are refused where they stand") {
    CHECK(refused([](Json& j) {
            j["levels"][0]["bandwidth_bytes_per_s"] = 0;
          }).starts_with("[data] /levels/0/bandwidth_bytes_per_s: must be "));
    CHECK(refused([](Json& j) { j["levels"][0]["latency_s"] = -1; }) ==
          "[data] /levels/0/latency_s: must be a number from 0.0 upwards, not -1");
    CHECK(refused([](Json& j) { j["devices"][3]["cores"] = {1}; }) ==
          "[data] /devices/3/cores: belongs to cpu devices only; remove it");
  }
}

}  // namespace cluster_json_test
