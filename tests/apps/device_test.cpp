// Devices that are not at hand, from the shell: groups that share layers, checkpointed blocks, figures fitted
// to measured steps.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "libprofile/core/file.h"
#include "libprofile/core/json_reader.h"
#include "tests/apps/run_checked.h"
#include "tests/support/places.h"

#include "tests/support/doctest.h"

namespace device_test {
namespace {

namespace fs = std::filesystem;
using pp::Json;
using pp::test::Outcome;
using Arguments = std::vector<std::string>;

const std::string kA100 = pp::test::repository("configs/devices/a100.json");
const std::string kModel = "gpt2:layers=4,width=512,heads=8,sequence=256,vocabulary=1024,tied=0";

struct Folder : pp::test::TemporaryFolder {
  Outcome run(const std::string& tool, const Arguments& arguments) const {
    return pp::test::run_checked(pp::test::program(tool), arguments, path());
  }
  std::string output(const std::string& tool, const Arguments& arguments) const {
    const Outcome outcome = run(tool, arguments);
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    return outcome.out;
  }
  Json estimated(Arguments more) const {
    Arguments arguments{"estimate", kModel,     "--device-spec",       kA100,
                        "--dtype",  "bfloat16", "--micro-batch-sizes", "2",
                        "-o",       "p.json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    output("pp-profile", arguments);
    return pp::parse_json(pp::read_file(path() / "p.json"));
  }
  /// Seconds of a step of two stages of two blocks each, two replicas, `micro_batches` for each.
  double planned(int micro_batches) const {
    const Json profile = estimated({"--checkpoint"});
    int cut = 0;
    while (!profile["layers"][static_cast<std::size_t>(cut)]["name"].get<std::string>().starts_with("block2"))
      ++cut;
    output("pp-plan", {"p.json",
                       "--devices",
                       "4",
                       "--bandwidth",
                       "230GB/s",
                       "--latency",
                       "20.4us",
                       "--mini-batch",
                       std::to_string(4 * micro_batches),
                       "--micro-batch-size",
                       "2",
                       "--schedule",
                       "1f1b",
                       "--stages",
                       "2",
                       "--replicas",
                       "2-2",
                       "--cuts",
                       std::to_string(cut),
                       "--window",
                       "win",
                       "--optimizer",
                       "adam",
                       "-o",
                       "plan.json"});
    return pp::parse_json(pp::read_file(path() / "plan.json"))["predicted"]["step_s"].get<double>();
  }
};

}  // namespace

TEST_SUITE("apps/device") {
  TEST_CASE("a profile of a tensor group says its degree, and members hold their part") {
    const Folder folder;
    const Json one = folder.estimated({}), four = folder.estimated({"--tensor", "4"});
    CHECK_FALSE(one.contains("tensor_degree"));
    CHECK(four["tensor_degree"] == 4);
    CHECK(four["context"]["sequence_parallel"] == "true");
    const auto bytes = [](const Json& profile) {
      std::int64_t sum = 0;
      for (const Json& layer : profile["layers"]) sum += layer["parameter_bytes"].get<std::int64_t>();
      return sum;
    };
    // 4 (12 512^2) + 2 1024 512 in matrices are divided by 4; whole stay 256 512 positions and, of a block, 4
    // 512 of the norms, 4 512 of attention and 512 of fc2, with 2048 / 4 of fc1, and the last norm's 2 512.
    const std::int64_t matrices = 4 * 12 * 512 * 512 + 2 * 1024 * 512;
    CHECK(bytes(four) == 2 * (matrices / 4 + 256 * 512 + 4 * (9 * 512 + 512) + 2 * 512));
    CHECK(folder.output("pp-profile", {"show", "p.json"}).find("of each of 4 devices that share every layer") !=
          std::string::npos);
    const Outcome refused = folder.run(
        "pp-profile", {"estimate", kModel, "--device-spec", kA100, "--dtype", "bfloat16", "--tensor", "3"});
    CHECK(refused.code == 2);
    CHECK(refused.err.find("block0.attention has num_heads 8, which 3 devices cannot divide") !=
          std::string::npos);
  }

  TEST_CASE("a slower link between members makes layers with all-reduces slower, and no others") {
    const Folder folder;
    const Json fast = folder.estimated({"--tensor", "4", "--tensor-link", "500GB/s", "--tensor-latency", "0"});
    const Json slow = folder.estimated({"--tensor", "4", "--tensor-link", "100MB/s", "--tensor-latency", "0"});
    // fc2's output, 2 256 512 of two bytes, takes 2 3/4 of it at 100 MB/s; launches hide behind it.
    for (std::size_t l = 0; l < fast["layers"].size(); ++l) {
      const std::string name = fast["layers"][l]["name"];
      const auto forward = [&](const Json& profile) {
        return profile["layers"][l]["points"][0]["forward_s"]["median"].get<double>();
      };
      const double more = forward(slow) - forward(fast);
      if (name == "block3.fc2") CHECK(more == doctest::Approx(1.5 * 524288 * (1e-8 - 2e-12)).epsilon(0.03));
      if (name == "block3.fc1") CHECK(more <= 0);
    }
  }

  TEST_CASE("the closed form that devices are fitted with is what plans of the same runs take") {
    const Folder folder;
    std::string runs = "model,micro_batch,micro_batches,stages,replicas,recompute,step_s\n";
    for (const int micro_batches : {2, 4, 8})
      runs += '"' + kModel + "\",2," + std::to_string(micro_batches) + ",2,2,1," +
              std::to_string(folder.planned(micro_batches)) + '\n';
    pp::write_file(folder.path() / "runs.csv", runs);
    const Json fit = pp::parse_json(folder.output(
        "pp-profile", {"fit", "--runs", "runs.csv", "--device-spec", kA100, "--parameters", "pp-run.launch_s",
                       "-o", "device.json", "--trainer-output", "trainer.json", "--json"}));
    CHECK(fit["before"]["runs"] == 3);
    CHECK(fit["before"]["mean"].get<double>() < 0.02);
    CHECK(fit["fitted"][0]["parameter"] == "pp-run.launch_s");
    CHECK(fit["fitted"][0]["sources"] == Json{"runs"});
    CHECK(fit["sources"].size() == 1);
    CHECK_FALSE(fit["sources"][0].contains("left_out"));
    const Json trainer = pp::parse_json(pp::read_file(folder.path() / "trainer.json"));
    CHECK(trainer["launch_s"] == fit["trainers"][0]["launch_s"]);
    folder.estimated({"--trainer", "trainer.json"});
    const std::string source = pp::parse_json(pp::read_file(folder.path() / "device.json"))["source"];
    CHECK(source.find("fitted by pp-profile fit to 3 measured steps") != std::string::npos);
  }

  TEST_CASE("context and rounding are fitted to peaks, beside what pp-plan counts for the same runs") {
    const Folder folder;
    folder.output("pp-profile", {"estimate", kModel, "--device-spec", kA100, "--dtype", "bfloat16",
                                 "--micro-batch-sizes", "1,2,4,8", "-o", "p.json"});
    // Each run is measured as 600 MB and 1.25 times what its plan of two replicas counts.
    std::string runs = "model,micro_batch,micro_batches,replicas,precision,sharded,step_s,peak_bytes\n";
    for (const int size : {1, 2, 4, 8}) {
      folder.output("pp-plan", {"p.json",
                                "--devices",
                                "2",
                                "--bandwidth",
                                "230GB/s",
                                "--mini-batch",
                                std::to_string(4 * size),
                                "--micro-batch-size",
                                std::to_string(size),
                                "--schedule",
                                "1f1b",
                                "--window",
                                "win",
                                "--stages",
                                "1",
                                "--replicas",
                                "2",
                                "--optimizer",
                                "adam",
                                "--precision",
                                "mixed",
                                "--shard",
                                "optimizer",
                                "-o",
                                "plan.json"});
      const Json plan = pp::parse_json(pp::read_file(folder.path() / "plan.json"));
      const double counted = plan["predicted"]["workers"][0]["peak_bytes"].get<double>();
      runs += '"' + kModel + "\"," + std::to_string(size) + ",2,2,mixed,1,0.1," +
              std::to_string(6e8 + 1.25 * counted) + '\n';
    }
    pp::write_file(folder.path() / "runs.csv", runs);
    Json start = pp::parse_json(pp::read_file(kA100));
    start.erase("context_bytes");
    pp::write_file(folder.path() / "start.json", pp::dump_json(start));
    const Arguments fit{"fit",          "--runs",          "runs.csv", "--device-spec", "start.json",
                        "--parameters", "pp-run.launch_s", "-o",       "device.json",   "--json"};
    const Json json = pp::parse_json(folder.output("pp-profile", fit));
    CHECK(json["memory"]["before"]["signed_mean"].get<double>() < -0.2);
    CHECK(json["memory"]["all"]["mean"].get<double>() < 1e-4);
    CHECK(json["memory"]["other_half"]["runs"] == 2);
    const Json device = pp::parse_json(pp::read_file(folder.path() / "device.json"));
    CHECK(device["context_bytes"].get<double>() == doctest::Approx(6e8).epsilon(1e-3));
    CHECK(device["memory_rounding"].get<double>() == doctest::Approx(1.25).epsilon(1e-3));
    CHECK(device["source"].get<std::string>().find("; memory to 4 measured peaks, off by ") !=
          std::string::npos);
    // What tensors can fill: 80 GiB / 1.25, less 600 MB, which plans subtract with the trainer's processes.
    folder.output("pp-profile", {"estimate", kModel, "--device-spec", "device.json", "--dtype", "bfloat16",
                                 "--micro-batch-sizes", "1", "-o", "p.json"});
    const Json profile = pp::parse_json(pp::read_file(folder.path() / "p.json"));
    CHECK(profile["device"]["memory_bytes"].get<double>() ==
          doctest::Approx(85899345920.0 / 1.25).epsilon(1e-3));
    CHECK(profile["trainer"]["process_bytes"].get<double>() == doctest::Approx(6e8).epsilon(1e-3));
  }

  TEST_CASE("runs without peaks leave the memory's figures as they are, and that is said") {
    const Folder folder;
    std::string runs = "model,micro_batch,micro_batches,step_s\n";
    for (const char* line : {"1,2,0.1", "2,2,0.1"}) runs += '"' + kModel + "\"," + line + '\n';
    pp::write_file(folder.path() / "runs.csv", runs);
    const std::string text =
        folder.output("pp-profile", {"fit", "--runs", "runs.csv", "--device-spec", kA100, "--parameters",
                                     "pp-run.launch_s", "-o", "device.json"});
    CHECK(text.ends_with("context_bytes, memory_rounding: left as they are, no run says its peak\n"));
    CHECK(pp::parse_json(pp::read_file(folder.path() / "device.json"))["context_bytes"] == 500000000);
  }

  TEST_CASE("a sweep of several tensor degrees has the fastest of each combination, marked as estimated") {
    const Folder folder;
    for (const char* degree : {"1", "4"}) {
      folder.output("pp-profile",
                    {"estimate", kModel, "--device-spec", kA100, "--dtype", "bfloat16", "--micro-batch-sizes",
                     "1,2,4", "--tensor", degree, "-o", std::string(degree) + ".json"});
    }
    const auto sweep = [&](Arguments more) {
      Arguments arguments{"sweep"};
      arguments.insert(arguments.end(), more.begin(), more.end());
      for (const char* one : {"--devices", "4,8", "--bandwidth", "200GB/s", "--mini-batch", "16",
                              "--micro-batches", "4,16", "--schedules", "1f1b", "--optimizer", "adam"})
        arguments.emplace_back(one);
      return folder.output("pp-plan", arguments);
    };
    const Json both = pp::parse_json(sweep({"1.json", "4.json", "--json"}));
    const Json one = pp::parse_json(sweep({"1.json", "--json"})),
               four = pp::parse_json(sweep({"4.json", "--json"}));
    REQUIRE(both.size() == 4);
    for (std::size_t r = 0; r < both.size(); ++r) {
      const double first = one[r]["step_s"], second = four[r]["step_s"];
      CHECK(both[r]["step_s"].get<double>() == std::min(first, second));
      CHECK(both[r]["tensor_degree"] == (second < first ? 4 : 1));
      CHECK(both[r]["devices"] == one[r]["devices"]);
      CHECK(both[r]["estimated"] == true);
    }
    CHECK(
        sweep({"1.json", "4.json"}).ends_with("times are estimated from the device's figures, not measured\n"));
    const Outcome twice = folder.run("pp-plan", {"sweep", "1.json", "1.json", "--devices", "4", "--bandwidth",
                                                 "1GB/s", "--mini-batch", "16"});
    CHECK(twice.code == 2);
    CHECK(twice.err.find("1.json: several profiles are of cpu devices") != std::string::npos);
  }

  TEST_CASE("reports of runs in one stage are fitted as they are, those in several are refused") {
    const Folder folder;
    const std::string core = pp::test::repository("configs/devices/cpu-core.json");
    folder.output("pp-profile", {"models", "mlp:inputs=8,width=16,layers=2,classes=4", "-o", "model.json"});
    folder.output("pp-profile", {"estimate", "model.json", "--device-spec", core, "-o", "profile.json"});
    // Of this machine's steps none is taken: twice what the plan promises stands in the report.
    const auto reported = [&](const std::string& stages, const std::string& replicas,
                              const std::string& mini_batch) {
      const std::string report = stages + "-" + mini_batch + ".report.json";
      folder.output("pp-plan", {"profile.json", "--devices", "2", "--bandwidth", "1GB/s", "--mini-batch",
                                mini_batch, "--micro-batch-size", "2", "--schedule", "1f1b", "--stages", stages,
                                "--replicas", replicas, "-o", "plan.json"});
      folder.output("pp-run", {"plan.json", "--data", "synthetic", "--no-evaluate", "--steps", "3", "--lr",
                               "0.01", "-o", report});
      Json json = pp::parse_json(pp::read_file(folder.path() / report));
      json["step_s"] = 2 * json["plan"]["predicted"]["step_s"].get<double>();
      pp::write_file(folder.path() / report, pp::dump_json(json));
      return report;
    };
    const std::string small = reported("1", "1", "4"), large = reported("1", "1", "16");
    const Json fit = pp::parse_json(
        folder.output("pp-profile", {"fit", "--runs", small, "--runs", large, "--device-spec", core,
                                     "--parameters", "kernel_overhead_s", "-o", "device.json", "--json"}));
    CHECK(fit["all"]["runs"] == 2);
    CHECK(fit["memory_left"] == "no run says its peak");  // on CPUs no allocator rounds
    CHECK(fit["fitted"][0]["parameter"] == "kernel_overhead_s");
    CHECK(fit["before"]["mean"].get<double>() == doctest::Approx(0.5).epsilon(0.05));  // |1/2 - 1|
    CHECK(fit["all"]["mean"].get<double>() < 0.25);
    // As on a GPU whose allocator reserved 3 MB.
    Json report = pp::parse_json(pp::read_file(folder.path() / small));
    report["context"]["cuda:0 reserved_peak_bytes"] = "3000000";
    pp::write_file(folder.path() / "gpu.report.json", pp::dump_json(report));
    const auto said = [&](const std::string& device) {
      return pp::parse_json(folder.output(
          "pp-profile", {"fit", "--runs", "gpu.report.json", "--runs", large, "--device-spec", device,
                         "--parameters", "kernel_overhead_s", "-o", "device.json", "--json"}))["memory_left"];
    };
    CHECK(said(core) == "the device to start from has no memory_bytes");
    CHECK(said(kA100) == "1 runs say their peaks, at least 4 are needed");
    const Outcome refused =
        folder.run("pp-profile", {"fit", "--runs", reported("2", "1-1", "4"), "--device-spec", core});
    CHECK(refused.code == 2);
    CHECK(refused.err.find("2-4.report.json: is of 2 stages; reports of one stage") != std::string::npos);
  }

  TEST_CASE("a fit refuses what it cannot use, by file and line") {
    const Folder folder;
    pp::write_file(folder.path() / "runs.csv",
                   "model,micro_batch,micro_batches,stages,step_s\n\"" + kModel + "\",1,1,3,0.1\n");
    const auto refused = [&](const Arguments& more) {
      Arguments arguments{"fit", "--runs", "runs.csv", "--device-spec", kA100};
      arguments.insert(arguments.end(), more.begin(), more.end());
      const Outcome outcome = folder.run("pp-profile", arguments);
      CHECK(outcome.code == 2);
      return outcome.err;
    };
    CHECK(refused({}).find("line 2: 3 stages do not divide the 4 blocks") != std::string::npos);
    pp::write_file(folder.path() / "runs.csv",
                   "model,micro_batch,micro_batches,step_s\n\"" + kModel + "\",1,1,0.1\n");
    CHECK(refused({"--parameters", "pp-run.launch_s"}).find("1 runs are too few for 1 parameters") !=
          std::string::npos);
    pp::write_file(folder.path() / "runs.csv", "model,micro_batch,step_s\n");
    CHECK(refused({}).find("runs.csv: line 1: the header has no column micro_batches; add it") !=
          std::string::npos);
  }
}

}  // namespace device_test
