// The main job through the three binaries: profile, plan, run on the handwritten digits.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "libplan/plan.h"
#include "libprofile/core/cluster.h"
#include "libprofile/core/file.h"
#include "libprofile/core/profile.h"
#include "tests/apps/run_checked.h"
#include "tests/support/places.h"

#include "tests/support/doctest.h"

#include "tests/support/gpu.h"

namespace chain_test {
namespace {

using pp::test::Outcome;
using pp::test::TemporaryFolder;

struct Folder : TemporaryFolder {
  Outcome run(const std::string& tool, const std::vector<std::string>& arguments) const {
    return pp::test::run_checked(pp::test::program(tool), arguments, path());
  }
  std::string file(const std::string& name) const { return pp::read_file(path() / name); }
  bool has(const std::string& name) const { return std::filesystem::exists(path() / name); }

  void profile(const std::string& kernels = "measured", const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments{
        "lenet5:image=8", "--micro-batch-sizes", "4,8,32", "--quick", "--kernels", kernels, "-o",
        "profile.json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run("pp-profile", arguments);
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
  }
  void plan(const std::string& name, std::vector<std::string> more) const {
    std::vector<std::string> arguments{"profile.json", "--devices", "2",  "--bandwidth", "1e9",
                                       "--mini-batch", "32",        "-o", name};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run("pp-plan", arguments);
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
  }
  Outcome train(const std::string& plan_file, std::vector<std::string> more) const {
    std::vector<std::string> arguments{plan_file, "--data", pp::test::repository("configs/data/digits")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run("pp-run", arguments);
  }
};

}  // namespace

TEST_SUITE("apps/chain") {
  TEST_CASE("profile, plan and run hand over by files alone, and every plan trains to the same bytes") {
    const Folder folder;
    folder.profile();
    const pp::Profile profile = pp::parse_profile(folder.file("profile.json"));
    CHECK(profile.micro_batch_sizes == std::vector<std::int64_t>{4, 8, 32});

    folder.plan("one.json", {"--stages", "1", "--replicas", "1", "--micro-batches", "4"});
    folder.plan("two.json",
                {"--stages", "2", "--replicas", "1-1", "--micro-batches", "4", "--schedule", "1f1b"});
    for (const std::string name : {"one", "two"}) {
      const Outcome outcome =
          folder.train(name + ".json", {"--steps", "5", "--no-evaluate", "--save-weights",
                                        name + ".safetensors", "-o", name + "-report.json"});
      CAPTURE(outcome.err);
      REQUIRE(outcome.code == 0);
      CHECK(outcome.out.find("measured/predicted") != std::string::npos);
    }
    CHECK(folder.file("one.safetensors") == folder.file("two.safetensors"));
    const pp::Json one = pp::parse_json(folder.file("one-report.json"));
    const pp::Json two = pp::parse_json(folder.file("two-report.json"));
    CHECK(one["step_losses"] == two["step_losses"]);
    CHECK(one["step_losses"].size() == 5);
  }

  TEST_CASE("plans carry the profile's autocast, runs obey it, and another one is a warning") {
    const Folder folder;
    const std::vector<std::string> cut{"--stages", "1", "--replicas", "1", "--micro-batches", "4"};
    const auto losses_of = [&](const std::string& plan, std::vector<std::string> more) {
      more.insert(more.end(), {"--steps", "3", "--no-evaluate", "-o", "report.json"});
      const Outcome outcome = folder.train(plan, more);
      CAPTURE(outcome.err);
      CHECK(outcome.code == 0);
      const bool warned = outcome.err.find(
                              "the plan's profile was of no autocast, this run is of autocast to "
                              "bfloat16") != std::string::npos;
      const pp::Json report = pp::parse_json(folder.file("report.json"));
      return std::tuple(report["step_losses"], report["settings"].value("autocast", "none"), warned);
    };
    folder.profile("mkl");
    folder.plan("plain.json", cut);
    CHECK(pp::parse_json(folder.file("plain.json"))["training"].contains("autocast") == false);
    const auto [whole, of_whole, silent] = losses_of("plain.json", {});
    CHECK(of_whole == "none");
    CHECK_FALSE(silent);
    const auto [given, of_given, warned] = losses_of("plain.json", {"--autocast", "bfloat16"});
    CHECK(of_given == "bfloat16");
    CHECK(warned);
    folder.profile("mkl", {"--autocast", "bfloat16"});
    CHECK(pp::parse_profile(folder.file("profile.json")).autocast == pp::Autocast::bfloat16);
    folder.plan("half.json", cut);
    CHECK(pp::parse_json(folder.file("half.json"))["training"]["precision"] == "autocast");
    const auto [planned, of_planned, warned_of_plan] = losses_of("half.json", {});
    CHECK(of_planned == "bfloat16");
    CHECK_FALSE(warned_of_plan);
    CHECK(planned == given);
    CHECK(planned != whole);
  }

  TEST_CASE("plans carry the profile's kernels, runs obey them, and a checkpoint knows them") {
    const Folder folder;
    folder.profile("onednn");
    folder.plan("one.json", {"--stages", "1", "--replicas", "1", "--micro-batches", "4", "--schedule", "1f1b"});
    folder.plan("two.json",
                {"--stages", "2", "--replicas", "1-1", "--micro-batches", "4", "--schedule", "1f1b"});
    const auto kernels_of = [&](const std::string& plan) {
      return pp::plan::parse_plan(folder.file(plan)).training.kernels;
    };
    // lenet5 ends in three linear layers: at each of three sizes three products forward, three gradients of
    // inputs, three of weights, each in two ways.
    CHECK(kernels_of("one.json").size() == 3 * (3 + 3 + 2 * 3));
    CHECK(kernels_of("two.json") == kernels_of("one.json"));
    const std::vector<std::string> options{"--steps",      "3",           "--no-evaluate",
                                           "--checkpoint", "checkpoints", "--save-weights"};
    for (const std::string name : {"one", "two"}) {
      std::vector<std::string> given = options;
      given.push_back(name + ".safetensors");
      if (name == "two") given[4] = "others";
      CHECK(folder.train(name + ".json", given).code == 0);
    }
    CHECK(folder.file("one.safetensors") == folder.file("two.safetensors"));
    const auto resumed = [&](const std::string& plan) {
      return folder.train(plan, {"--steps", "4", "--no-evaluate", "--resume", "checkpoints"});
    };
    CHECK(resumed("two.json").err.find("kernels") == std::string::npos);
    folder.profile("mkl");
    folder.plan("usual.json",
                {"--stages", "1", "--replicas", "1", "--micro-batches", "4", "--schedule", "1f1b"});
    CHECK(kernels_of("usual.json").empty());
    const Outcome other = resumed("usual.json");
    CHECK(other.code == 0);
    CHECK(other.err.find("kernels usual (was ") != std::string::npos);
  }

  // A layer of three equal products, and three layers of one: however fast the machine is and whatever else it
  // does, the first costs three times as much as each of them. The bands are far wider than noise and far
  // narrower than a cost that is lost or counted twice.
  TEST_CASE("a cost that is known to be 3 : 1 comes out so, from the profile to the plan") {
    const Folder folder;
    pp::write_file(folder.path() / "model.json", R"({ "format": "pp.model", "version": 1, "name": "ratio",
      "inputs": [{ "name": "x", "dtype": "float32", "shape": [256] }],
      "targets": [{ "name": "y", "dtype": "int64", "shape": [] }],
      "layers": [
        { "name": "three", "op": "graph", "inputs": ["x"],
          "nodes": [
            { "name": "a", "op": "linear", "inputs": ["x"], "attributes": { "out_features": 256 } },
            { "name": "b", "op": "linear", "inputs": ["a"], "attributes": { "out_features": 256 } },
            { "name": "c", "op": "linear", "inputs": ["b"], "attributes": { "out_features": 256 } } ],
          "outputs": ["c"] },
        { "name": "one", "op": "linear", "inputs": ["three"], "attributes": { "out_features": 256 } },
        { "name": "two", "op": "linear", "inputs": ["one"], "attributes": { "out_features": 256 } },
        { "name": "last", "op": "linear", "inputs": ["two"], "attributes": { "out_features": 256 } } ],
      "outputs": ["last"], "loss": { "op": "cross_entropy", "inputs": ["last", "y"] } })");
    const Outcome profiled =
        folder.run("pp-profile", {"model.json", "--micro-batch-sizes", "64", "--quick", "-o", "profile.json"});
    CAPTURE(profiled.err);
    REQUIRE(profiled.code == 0);
    const pp::Profile profile = pp::parse_profile(folder.file("profile.json"));
    REQUIRE(profile.layers.size() == 4);
    const auto forward = [&](std::size_t layer) { return profile.layers[layer].points[0].forward.low.count(); };
    const double ratio = forward(0) / ((forward(1) + forward(2) + forward(3)) / 3);
    CHECK(ratio > 1.8);
    CHECK(ratio < 5);
    const Outcome planned = folder.run(
        "pp-plan", {"profile.json", "--devices", "2", "--bandwidth", "1e12", "--mini-batch", "256",
                    "--micro-batches", "4", "--schedule", "gpipe", "--cuts", "1", "-o", "plan.json"});
    CAPTURE(planned.err);
    REQUIRE(planned.code == 0);
    const pp::plan::Plan plan = pp::plan::parse_plan(folder.file("plan.json"));
    REQUIRE(plan.predicted.stages.size() == 2);
    const double stages = plan.predicted.stages[0].forward / plan.predicted.stages[1].forward;
    CHECK(stages > 0.5);
    CHECK(stages < 2);
  }

  TEST_CASE("two runs with one seed give the same weights and losses, another seed others") {
    const Folder folder;
    folder.profile();
    folder.plan("plan.json", {"--stages", "2", "--micro-batches", "4"});
    const auto run = [&](const std::string& name, const std::string& seed) {
      REQUIRE(folder
                  .train("plan.json",
                         {"--steps", "3", "--seed", seed, "--save-weights", name, "--json", "--no-evaluate"})
                  .code == 0);
      return folder.file(name);
    };
    const std::string first = run("a", "7");
    CHECK(run("b", "7") == first);
    CHECK(run("c", "8") != first);
  }

  TEST_CASE("an asynchronous plan trains, and a trace of the run is written") {
    const Folder folder;
    folder.profile();
    folder.plan("plan.json", {"--schedule", "pipedream", "--stages", "2", "--replicas", "1-1"});
    const Outcome outcome =
        folder.train("plan.json", {"--epochs", "1", "--trace", "trace.json", "--drop-last", "--json"});
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    const pp::Json report = pp::parse_json(outcome.out);
    CHECK(report["epochs"].size() == 1);
    CHECK(pp::parse_json(folder.file("trace.json")).at("traceEvents").size() > 4);
  }

  TEST_CASE("links are measured into a cluster that the planner reads") {
    const Folder folder;
    const Outcome outcome = folder.run("pp-profile", {"links", "--devices", "cpu:2x1", "-o", "cluster.json"});
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    const pp::Cluster cluster = pp::parse_cluster(folder.file("cluster.json"));
    CHECK(cluster.devices.size() == 2);
    CHECK(cluster.measured);
    folder.profile();
    const Outcome plan = folder.run(
        "pp-plan", {"profile.json", "--cluster", "cluster.json", "--mini-batch", "32", "-o", "plan.json"});
    CAPTURE(plan.err);
    CHECK(plan.code == 0);
  }
}

TEST_SUITE("gpu/apps/chain") {
  TEST_CASE("gpu/apps/chain: two workers on cuda:0, measured, planned and trained by files alone") {
    PP_NEEDS_CUDA(1);
    const Folder folder;
    const Outcome profile = folder.run("pp-profile", {"lenet5:image=8", "--device", "cuda:0", "--quick",
                                                      "--micro-batch-sizes", "8", "-o", "profile.json"});
    CAPTURE(profile.err);
    REQUIRE(profile.code == 0);
    CHECK(profile.out.find("measured on " + pp::profile::cuda_device_name(0) + "\n") != std::string::npos);
    // What is handed over by reference has no bandwidth; the planner must accept what stands for it.
    const Outcome links =
        folder.run("pp-profile", {"links", "--devices", "cuda:0,cuda:0", "-o", "cluster.json"});
    CAPTURE(links.err);
    REQUIRE(links.code == 0);
    for (const std::string stages : {"1", "2"}) {
      const Outcome plan =
          folder.run("pp-plan", {"profile.json", "--cluster", "cluster.json", "--mini-batch", "32",
                                 "--micro-batches", "4", "--schedule", "1f1b", "--stages", stages, "--replicas",
                                 stages == "1" ? "1" : "1-1", "-o", stages + ".json"});
      CAPTURE(plan.err);
      REQUIRE(plan.code == 0);
      const Outcome run = folder.train(stages + ".json", {"--steps", "5", "--save-weights", stages});
      CAPTURE(run.err);
      REQUIRE(run.code == 0);
      CHECK(run.out.find("measured/predicted") != std::string::npos);
    }
    CHECK(folder.file("1") == folder.file("2"));
  }
}

}  // namespace chain_test
