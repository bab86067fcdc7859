// Cores per device as a choice: several profiles of one model compete, each on the machine of its devices.
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "libplan/plan.h"
#include "libprofile/core/cluster.h"
#include "libprofile/core/file.h"
#include "tests/apps/run_checked.h"
#include "tests/apps/sample_profile.h"
#include "tests/support/places.h"

#include "tests/support/doctest.h"

namespace machines_test {
namespace {

using pp::Json;
using pp::test::Outcome;

/// Six layers of 2 + 4 ms per 16 samples on one core, `share` of it on two.
struct Folder : pp::test::TemporaryFolder {
  explicit Folder(double share) {
    write("one.json", pp::test::sample_profile(std::vector<double>(6, 2.0)));
    wide = pp::test::sample_profile(std::vector<double>(6, 2.0 * share));
    wide.device.cores_per_device = 2;
    write("two.json", wide);
  }
  void write(const std::string& name, const pp::Profile& profile) const {
    pp::write_file(path() / name, pp::dump_json(to_json(profile)));
  }
  void write_changed(const std::function<void(pp::Profile&)>& change) const {
    pp::Profile changed = wide;
    change(changed);
    write("two.json", changed);
  }
  Outcome run(const std::vector<std::string>& arguments) const {
    return pp::test::run_checked(pp::test::program("pp-plan"), arguments, path());
  }
  /// On two cores joined by a link that takes practically no time.
  Outcome plan(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments{"one.json",    "two.json",  "--devices",    "2",
                                       "--bandwidth", "1e12",      "--mini-batch", "64",
                                       "-o",          "plan.json", "--schedule",   "1f1b"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
  pp::plan::Plan written() const { return pp::plan::parse_plan(pp::read_file(path() / "plan.json")); }

  pp::Profile wide;
};

doctest::Approx near(double value) { return doctest::Approx(value).epsilon(1e-3); }

void refused(const Outcome& outcome, const std::string& message) {
  CHECK(outcome.code == 2);
  CHECK(outcome.out.empty());
  CHECK(outcome.err == "pp-plan: error: " + message + "\n");
}

}  // namespace

TEST_SUITE("apps/machines") {
  TEST_CASE("one device of two cores wins where it is faster than all that two devices of one core can do") {
    // 64 samples are 144 ms of one core, so 72 ms on both by data parallelism; 40 % of 144 ms are 57.6.
    const Folder folder(0.4);
    const Outcome made = folder.plan({"--explain"});
    CAPTURE(made.err);
    REQUIRE(made.code == 0);
    const std::string verdict =
        "1 device of 2 cores beats every plan for 2 devices of 1 core: 57.6 ms against 72 ms per step, 25.0 % "
        "slower";
    CHECK(made.out.find('\n' + verdict + '\n') != std::string::npos);
    CHECK(made.out.find("\nDevices: " + verdict + " (1f1b, layers 6 on replicas 2, ") != std::string::npos);
    const pp::plan::Plan plan = folder.written();
    CHECK(plan.predicted.step.count() == near(0.0576));
    REQUIRE(plan.devices.size() == 1);
    CHECK(plan.devices[0].cores == std::vector<int>{0, 1});
    CHECK(plan.profile_hash == profile_hash(folder.wide));
    REQUIRE(plan.machines.size() == 2);
    CHECK(plan.machines[0].cores_per_device == 2);
    CHECK(plan.machines[0].verdict.empty());
    CHECK(plan.machines[1].devices == 2);
    CHECK(plan.machines[1].step->count() == near(0.072));
    CHECK(plan.machines[1].verdict == verdict);
    // The alternatives of both, by step.
    bool both[3] = {};
    for (std::size_t i = 0; i < plan.alternatives.size(); ++i) {
      both[plan.alternatives[i].cores_per_device] = true;
      if (i > 0) CHECK(plan.alternatives[i - 1].step <= plan.alternatives[i].step);
    }
    CHECK(both[1]);
    CHECK(both[2]);
    // Printed, shown again, and read as JSON.
    CHECK(folder.run({"check", "plan.json", "--profile", "two.json"}).code == 0);
    CHECK(folder.run({"show", "plan.json"}).out.find(verdict) != std::string::npos);
    const Json printed = pp::parse_json(folder.plan({"--explain", "--json"}).out);
    CHECK(printed["machines"][1]["verdict"] == verdict);
    CHECK(printed["explanation"]["machines"][0] == verdict);
  }

  TEST_CASE("two devices of one core win where the second core of a device brings little") {
    // 60 % of 144 ms are 86.4 ms, 20 % more than 72.
    const Folder folder(0.6);
    const Outcome made = folder.plan({});
    REQUIRE(made.code == 0);
    CHECK(
        made.out.find("2 devices of 1 core beat every plan for 1 device of 2 cores: 72 ms against 86.4 ms per "
                      "step, 20.0 % slower\n") != std::string::npos);
    const pp::plan::Plan plan = folder.written();
    CHECK(plan.devices.size() == 2);
    CHECK(plan.devices[0].cores.empty());
    CHECK(plan.machines[0].cores_per_device == 1);
    // Alone, without the other profile, it is the same plan; the order of the files decides nothing.
    CHECK(folder
              .run({"two.json", "one.json", "--devices", "2", "--bandwidth", "1e12", "--mini-batch", "64",
                    "--schedule", "1f1b", "-o", "other.json"})
              .code == 0);
    CHECK(pp::read_file(folder.path() / "other.json") == pp::read_file(folder.path() / "plan.json"));
  }

  TEST_CASE("a cluster.json of cores serves devices of several cores too") {
    const Folder folder(0.4);
    pp::Cluster cluster =
        pp::flat_cluster(2, pp::DeviceKind::cpu, pp::BytesPerSecond(1e12), pp::Seconds(0), pp::Bytes(0));
    cluster.devices[0].cores = {4};
    cluster.devices[1].cores = {6};
    pp::write_file(folder.path() / "cluster.json", pp::dump_json(to_json(cluster)));
    REQUIRE(
        folder
            .run({"one.json", "two.json", "--cluster", "cluster.json", "--mini-batch", "64", "-o", "plan.json"})
            .code == 0);
    CHECK(folder.written().devices[0].cores == std::vector<int>{4, 6});
    cluster.devices.resize(1);
    cluster.devices[0].cores = {0, 1, 2};
    cluster.levels[0].devices = 1;
    pp::write_file(folder.path() / "cluster.json", pp::dump_json(to_json(cluster)));
    refused(
        folder.run({"one.json", "two.json", "--cluster", "cluster.json", "--mini-batch", "64"}),
        "cluster.json: devices of 1 core, as profiled, are not made of devices of 3 cores, as the machine has; "
        "profile such devices, or give smaller ones");
  }

  TEST_CASE("one profile of devices of two cores plans devices of two cores") {
    const Folder folder(0.4);
    REQUIRE(folder
                .run({"two.json", "--devices", "2", "--bandwidth", "1e12", "--mini-batch", "64", "--stages",
                      "2", "-o", "plan.json"})
                .code == 0);
    CHECK(folder.written().devices[0].cores == std::vector<int>{0, 1});
    CHECK(folder.written().devices[1].cores == std::vector<int>{2, 3});

    pp::Cluster cluster =
        pp::flat_cluster(4, pp::DeviceKind::cpu, pp::BytesPerSecond(1e12), pp::Seconds(0), pp::Bytes(0));
    for (int i = 0; i < 4; ++i) cluster.devices[static_cast<std::size_t>(i)].cores = {10 + i};
    const auto plan_on = [&](const char* profile) {
      pp::write_file(folder.path() / "cluster.json", pp::dump_json(to_json(cluster)));
      return folder.run(
          {profile, "--cluster", "cluster.json", "--mini-batch", "64", "--stages", "2", "-o", "plan.json"});
    };
    REQUIRE(plan_on("two.json").code == 0);
    REQUIRE(folder.written().devices.size() == 2);
    CHECK(folder.written().devices[1].cores == std::vector<int>{12, 13});
    cluster.devices[3].cores = {13, 14};
    refused(
        plan_on("two.json"),
        "cluster.json: its devices have different numbers of cores, 1 and 2; a profile is of devices of one "
        "number: make them equal");
    for (pp::Device& device : cluster.devices) device.cores = {0, 1};
    refused(plan_on("one.json"),
            "cluster.json: devices of 1 core, as profiled, are not made of devices of 2 cores, as the machine "
            "has; profile such devices, or give smaller ones");
  }

  TEST_CASE("where nothing fits one machine the other wins, where nothing fits any the first says why") {
    // Weights, gradients and momentum of three linear layers of 4160 parameters are 150 kB; a device of one
    // core has 64 KiB, which hold no two stages of them either.
    const Folder folder(0.4);
    const Outcome made = folder.plan({"--memory", "100KiB"});
    CAPTURE(made.out);
    REQUIRE(made.code == 0);
    const pp::plan::Plan plan = folder.written();
    CHECK(plan.machines[0].cores_per_device == 2);
    CHECK(folder.plan({"--memory", "1KiB"}).code == 3);
  }

  TEST_CASE("profiles that cannot compete are refused with their names") {
    const Folder folder(0.4);
    folder.write_changed([](pp::Profile& profile) { profile.device.cores_per_device = 1; });
    refused(
        folder.plan({}),
        "one.json and two.json both profile devices of 1 core; several profiles are of devices of different "
        "numbers of cores");
    folder.write_changed([](pp::Profile& profile) { profile.dtype = pp::DType::bfloat16; });
    refused(folder.plan({}),
            "one.json and two.json profile different types (float32, bfloat16); profile both with the same "
            "--dtype");
    folder.write_changed([](pp::Profile& profile) { profile.memory_format = pp::MemoryFormat::channels_last; });
    refused(folder.plan({}),
            "one.json and two.json profile different memory formats (contiguous, channels_last); profile both "
            "with the same --memory-format");
    folder.write_changed([](pp::Profile& profile) { profile.device.kind = pp::DeviceKind::cuda; });
    refused(folder.plan({}),
            "two.json: several profiles are of cpu devices of different numbers of cores, this one is of cuda; "
            "give it alone");
    folder.write_changed([](pp::Profile& profile) {
      for (pp::LayerProfile& layer : profile.layers) layer.points.resize(1);
      profile.micro_batch_sizes = {1};
    });
    const Outcome batch = folder.plan({"--micro-batch-size", "16"});
    CHECK(batch.code == 2);
    CHECK(batch.err.starts_with("pp-plan: error: two.json: "));
    folder.write("two.json", pp::test::sample_profile(std::vector<double>(4, 2.0)));
    const Outcome model = folder.plan({});
    CHECK(model.err ==
          "pp-plan: error: one.json and two.json profile different models (\"sample\", \"sample\"); "
          "profile one model on devices of each size\n");
    CHECK(folder
              .run({"one.json", "two.json", "--cost-model", "pipedream-code", "--devices", "2", "--bandwidth",
                    "1e9"})
              .err == "pp-plan: error: several profiles: only for --cost-model pp; give one\n");
  }
}

}  // namespace machines_test
