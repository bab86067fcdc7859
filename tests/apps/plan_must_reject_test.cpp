// What pp-plan must refuse, each with its whole message: bad input exits 2, a request without a plan 3.
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "libprofile/core/cluster.h"
#include "libprofile/core/file.h"
#include "libprofile/core/json_reader.h"
#include "tests/apps/run_checked.h"
#include "tests/apps/sample_profile.h"
#include "tests/support/places.h"

#include "tests/support/doctest.h"

namespace plan_must_reject_test {
namespace {

using pp::Json;
using pp::test::Outcome;

/// Six layers, profiled at 1, 2, 4, 8 and 16 samples.
struct Folder : pp::test::TemporaryFolder {
  Folder() { pp::test::write_profile(path(), pp::test::sample_profile(std::vector<double>(6, 2.0))); }
  Outcome run(const std::vector<std::string>& arguments) const {
    return pp::test::run_checked(pp::test::program("pp-plan"), arguments, path());
  }
  /// Two devices and a mini-batch of 64 with these arguments behind.
  Outcome request(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments{"profile.json", "--devices",    "2", "--bandwidth",
                                       "1e9",          "--mini-batch", "64"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
  /// The same with a spoiled profile.
  Outcome request_with(const std::function<void(Json&)>& spoil) const {
    const std::filesystem::path file = path() / "profile.json";
    Json json = pp::parse_json(pp::read_file(file));
    spoil(json);
    pp::write_file(file, pp::dump_json(json));
    return request();
  }
};

void refused(const Outcome& outcome, const std::string& message) {
  CHECK(outcome.code == 2);
  CHECK(outcome.out.empty());
  CHECK(outcome.err == "pp-plan: error: " + message + "\n");
}

Json& first_point(Json& profile) { return profile["layers"][0]["points"][0]; }

}  // namespace

TEST_SUITE("apps/plan_must_reject") {
  TEST_CASE("a memory limit below the state of one layer names the layer, the bytes and a limit that works") {
    // layer0: 64 * 64 + 64 parameters of 4 bytes, their gradients and as many bytes of momentum: 49,920.
    const Outcome outcome = Folder().request({"--memory-limit", "1"});
    CHECK(outcome.code == 3);
    CHECK(outcome.out.empty());
    CHECK(outcome.err.find("pp-plan: no feasible plan: does not fit: layer layer0 alone needs 49920 bytes "
                           "for its weights, gradients and optimizer state, 49919 more than the limit of 1 "
                           "byte; smallest feasible limit ") != std::string::npos);
    const std::string limit = outcome.err.substr(outcome.err.rfind(' ') + 1);
    CHECK(outcome.err.find("pp-plan: this would fit: --memory-limit " + limit) != std::string::npos);
    CHECK(Folder().request({"--memory-limit", limit.substr(0, limit.size() - 1)}).code == 0);
  }

  TEST_CASE("more stages than layers, than devices") {
    refused(Folder().request({"--stages", "9"}), "stages = 9 exceeds the number of layers, 6");
    refused(Folder().request({"--stages", "3"}), "stages = 3 exceeds the number of devices, 2");
    refused(Folder().request({"--replicas", "3-1"}), "replicas need 4 devices, the cluster has 2");
  }

  TEST_CASE("interleaved with micro-batches that its workers do not divide names the nearest that do") {
    refused(
        Folder().request({"--schedule", "interleaved", "--stages", "2", "--micro-batches", "9"}),
        "schedule interleaved: micro_batches = 9 is not a multiple of 2 workers; use 8 or 10, or group = 9");
  }

  TEST_CASE("mini-batches that the profile's sizes do not make up") {
    refused(Folder().request({"--micro-batches", "65"}),
            "micro_batches = 65 exceeds the mini-batch of 64 samples");
    refused(Folder().request({"--micro-batch-size", "65"}),
            "micro_batch_size = 65 exceeds the mini-batch of 64 samples");
    refused(Folder().request({"--micro-batch-size", "3"}),
            "micro_batch_size = 3 does not divide the mini-batch of 64 samples; use a mini-batch of 63, or "
            "--micro-batches for unequal sizes");
    refused(
        Folder().request({"--micro-batch-size", "32"}),
        "layer layer0: micro-batch size 32 is outside the profiled 1..16; profile that size, choose another or "
        "allow --extrapolate");
    refused(Folder().run({"profile.json", "--devices", "1"}),
            "mini_batch = 0: the samples per optimizer update are not given; add --mini-batch N");
  }

  TEST_CASE("a link without bandwidth, or a latency below zero") {
    refused(Folder().run({"profile.json", "--devices", "2", "--bandwidth", "0", "--mini-batch", "64"}),
            "--bandwidth: \"0\" is not a bandwidth above 0; write a number with B/s, kB/s, MB/s, GB/s, TB/s, "
            "KiB/s, "
            "MiB/s, GiB/s, or, in bits, Mbit/s, Gbit/s (also Mb/s, Gb/s, Mbps, Gbps)");
    refused(Folder().request({"--latency", "-1us"}),
            "--latency: \"-1us\" is not a time; write a number with ns, us, ms, s, min or h");
  }

  TEST_CASE("counts that are no whole numbers") {
    refused(Folder().run({"profile.json", "--devices", "0", "--mini-batch", "64"}),
            "--devices: \"0\" is not a whole number of at least 1; see pp-plan make --help");
    refused(Folder().run({"profile.json", "--devices", "2x8", "--mini-batch", "64"}),
            "--devices: \"2x8\" is not a whole number of at least 1; see pp-plan make --help");
    refused(Folder().request({"--mini-batch", "-4"}),
            "--mini-batch: \"-4\" is not a whole number of at least 1; see pp-plan make --help");
    refused(Folder().request({"--stages", "1.5"}),
            "--stages: \"1.5\" is not a whole number of at least 1; see pp-plan make --help");
  }

  TEST_CASE("a mini-batch below the profiled sizes, or between their multiples, names the possible ones") {
    const Folder folder;
    pp::Profile profile = pp::test::sample_profile(std::vector<double>(2, 2.0));
    profile.micro_batch_sizes = {8};
    for (pp::LayerProfile& layer : profile.layers)
      std::erase_if(layer.points, [](const pp::LayerPoint& point) { return point.micro_batch_size != 8; });
    pp::test::write_profile(folder.path(), profile);
    const auto with_mini_batch = [&](const std::string& samples) {
      return folder.run({"profile.json", "--devices", "1", "--mini-batch", samples});
    };
    refused(with_mini_batch("4"),
            "no profiled micro-batch size (8) divides the mini-batch of 4 samples; use a mini-batch of 8, or "
            "allow --linear-batch");
    refused(with_mini_batch("20"),
            "no profiled micro-batch size (8) divides the mini-batch of 20 samples; use a mini-batch of 16 or "
            "24, or give --micro-batches");
    CHECK(with_mini_batch("24").code == 0);
  }

  TEST_CASE("layers that read each other, in a ring or themselves, name the way round") {
    refused(Folder().request_with([](Json& json) { json["model"]["layers"][1]["inputs"] = {"layer2"}; }),
            "profile.json: /model/layers/1/inputs/0: cycle: \"layer1\" reads \"layer2\" reads \"layer1\"; a "
            "model has no cycles, remove one of these inputs");
    refused(Folder().request_with([](Json& json) { json["model"]["layers"][3]["inputs"] = {"layer3"}; }),
            "profile.json: /model/layers/3/inputs/0: cycle: \"layer3\" reads \"layer3\"; a model has no "
            "cycles, remove one of these inputs");
  }

  TEST_CASE("keys that nobody knows, or that stand twice") {
    refused(
        Folder().request_with([](Json& json) { json["speed"] = 1; }),
        "profile.json: /speed: unknown key; use one of format, version, context, model, model_hash, device, "
        "dtype, memory_format, autocast, mode, tensor_degree, trainer, micro_batch_sizes, layers, loss, "
        "whole_model, optimizers, "
        "kernels, operation_overhead, estimated");
    const Folder folder;
    pp::write_file(folder.path() / "profile.json", R"({ "format": "pp.profile", "version": 1, "version": 1 })");
    refused(folder.request(), "profile.json: /version: the key appears twice; remove one of them");
  }

  TEST_CASE("numbers that JSON does not have, or that are too large") {
    const Folder folder;
    const auto with_number = [&](const std::string& number) {
      pp::write_file(folder.path() / "profile.json", "{ \"format\": \"pp.profile\", \"x\": " + number + " }");
      return folder.request();
    };
    // The number begins in column 32; one that is too large is read to its end.
    const std::string place = "profile.json: line 1, column ";
    refused(with_number("NaN"),
            place + "32: not valid JSON: NaN and infinity are not allowed; write a finite number");
    refused(with_number("Infinity"),
            place + "32: not valid JSON: NaN and infinity are not allowed; write a finite number");
    refused(with_number("1e400"), place + "36: not valid JSON: the number is too large");
  }

  TEST_CASE("bytes below zero or in fractions") {
    refused(Folder().request_with([](Json& json) { first_point(json)["output_bytes"] = -1; }),
            "profile.json: /layers/0/points/0/output_bytes: must be an integer from 0 upwards, not -1");
    refused(Folder().request_with([](Json& json) { json["layers"][0]["parameter_bytes"] = 1.5; }),
            "profile.json: /layers/0/parameter_bytes: must be an integer from 0 upwards, not 1.5");
  }

  TEST_CASE("times that are no numbers, below zero, or without their unit") {
    refused(Folder().request_with([](Json& json) { first_point(json)["forward_s"]["median"] = nullptr; }),
            "profile.json: /layers/0/points/0/forward_s/median: must be a number from 0.0 upwards, not null");
    refused(Folder().request_with([](Json& json) { first_point(json)["forward_s"]["median"] = -1; }),
            "profile.json: /layers/0/points/0/forward_s/median: must be a number from 0.0 upwards, not -1");
    refused(Folder().request_with([](Json& json) {
      first_point(json)["forward"] = first_point(json)["forward_s"];
      first_point(json).erase("forward_s");
    }),
            "profile.json: /layers/0/points/0/forward_s: missing; add this key, an object");
  }

  TEST_CASE("sizes that do not rise, layers of one name") {
    refused(
        Folder().request_with([](Json& json) {
          json["micro_batch_sizes"] = {1, 4, 2, 8, 16};
        }),
        "profile.json: /micro_batch_sizes: [1, 4, 2, 8, 16] must hold at least one size, ascending, each once");
    refused(
        Folder().request_with([](Json& json) { json["model"]["layers"][1]["name"] = "layer0"; }),
        "profile.json: /model/layers/1/name: duplicate name \"layer0\", already at /model/layers/0; rename one "
        "of them");
  }

  TEST_CASE("figures that look like another unit") {
    refused(Folder().run({"profile.json", "--devices", "2", "--bandwidth", "100", "--mini-batch", "64"}),
            "level flat: bandwidth 100 B/s is outside 1e6..1e13 bytes per second: another unit? Allow it with "
            "--force-units");
    // Six layers of 2 ms at 16 samples: 0.125 ms each for one sample, 750 us in all; a billion times that is
    // 208 h.
    refused(Folder().request_with([](Json& json) {
      for (Json& layer : json["layers"]) {
        for (const char* key : {"median", "low", "high"})
          layer["points"][0]["forward_s"][key] = 1e9 * layer["points"][0]["forward_s"][key].get<double>();
      }
    }),
            "the profile's forward time of one sample is 208 h, outside 1e-9..1e3 s: not seconds? Allow it "
            "with "
            "--force-units");
    // 100 B/s carry the 64 * 256 bytes of a step in 164 s each way; one device takes 4 * 36 ms.
    const Outcome forced = Folder().run({"profile.json", "--devices", "2", "--bandwidth", "100", "--mini-batch",
                                         "64", "--force-units", "--json"});
    REQUIRE(forced.code == 0);
    CHECK(pp::parse_json(forced.out)["workers"].size() == 1);
  }

  TEST_CASE("a profile of another device class than the cluster's") {
    const Folder folder;
    const pp::Cluster cluster =
        pp::flat_cluster(2, pp::DeviceKind::cuda, pp::BytesPerSecond(1e9), pp::Seconds(0), pp::Bytes(0));
    pp::write_file(folder.path() / "cluster.json", pp::dump_json(pp::to_json(cluster)));
    refused(folder.run({"profile.json", "--cluster", "cluster.json", "--mini-batch", "64"}),
            "device 0 is cuda, the profile was taken on cpu; profile the model on that kind of device");
  }

  TEST_CASE("options that contradict each other") {
    refused(Folder().request({"--stages", "2", "--cuts", "1,3"}),
            "stages asks for 2 stages, cuts for 3; make them agree");
    refused(Folder().request({"--schedule", "1f1b", "--weight-policy", "stash"}),
            "weight_policy = stash does not go with schedule 1f1b; use flush");
    refused(Folder().request({"--weight-policy", "stash"}),
            "no schedule of auto goes with weight_policy = stash; add --allow-async, or name the schedule");
  }
}

}  // namespace plan_must_reject_test
