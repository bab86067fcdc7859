// Plans from times that nobody has measured: for machines that are not at hand.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "libprofile/core/file.h"
#include "libprofile/estimate/estimate.h"
#include "libprofile/model/families/families.h"
#include "tests/apps/run_checked.h"
#include "tests/support/places.h"

#include "tests/support/doctest.h"

namespace estimated_plan_test {
namespace {

using pp::Json;
using pp::test::Outcome;

/// GPT-3's width and depth for devices of 80 GiB.
struct Folder : pp::test::TemporaryFolder {
  Folder() {
    const std::string spec = pp::read_file(pp::test::repository("configs/devices/h100.json"));
    const pp::Profile profile = pp::profile::estimate_profile(
        pp::model::build_family("gpt2:layers=96,width=12288,heads=96,sequence=2048,tied=0,dropout=0"),
        pp::profile::parse_device_spec(spec), {.micro_batch_sizes = {1}, .dtype = pp::DType::bfloat16});
    pp::write_file(path() / "gpt3.json", pp::dump_json(pp::to_json(profile)));
  }
  Outcome plan(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments{"gpt3.json",   "--latency", "5us",        "--memory", "80GiB",
                                       "--optimizer", "adamw",     "--schedule", "1f1b"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return pp::test::run_checked(pp::test::program("pp-plan"), arguments, path());
  }
};

}  // namespace

TEST_SUITE("apps/estimated_plan") {
  TEST_CASE(
      "a model of 175e9 parameters has a plan on 128 nodes of eight, which says that its times are estimated") {
    const Folder folder;
    const Outcome made = folder.plan(
        {"--levels", "8@300GB/s,128@25GB/s", "--mini-batch", "256", "--recompute", "auto", "-o", "plan.json"});
    REQUIRE(made.code == 0);
    const std::string warning =
        "pp-plan: warning: the times of the profile are estimated for NVIDIA H100 SXM5 80 GB, not measured: "
        "of laboratories that no figure was fitted to, steps were off by 4 to 11 % in the mean, those of "
        "tensor "
        "groups of 2 and 4 on several nodes by 13 to 17 %; plans closer than 5 % are not told apart; measure "
        "with pp-profile run for a plan to rely on\n";
    const std::size_t first = made.err.find(warning);
    CHECK(first != std::string::npos);
    CHECK(made.err.find("estimated", first + warning.size()) == std::string::npos);  // once
    const Json plan = pp::parse_json(pp::read_file(folder.path() / "plan.json"));
    CHECK(plan["context"]["times"] == "estimated");
    for (const Json& worker : plan["predicted"]["workers"])
      CHECK(worker["peak_bytes"].get<std::int64_t>() <= (std::int64_t{80} << 30) * 95 / 100);
  }

  TEST_CASE("several estimated profiles are warned of in one line, in sweeps too") {
    const Folder folder;
    for (const int tensor : {1, 2}) {
      const Outcome made = pp::test::run_checked(
          pp::test::program("pp-profile"),
          {"estimate", "gpt2", "--device-spec", "h100", "--dtype", "bfloat16", "--micro-batch-sizes", "1",
           "--tensor", std::to_string(tensor), "-q", "-o", "t" + std::to_string(tensor) + ".json"},
          folder.path());
      REQUIRE(made.err == "");
    }
    const auto warnings = [](const Outcome& made) {
      REQUIRE(made.code == 0);
      CHECK(made.err.find("estimated for NVIDIA H100 SXM5 80 GB, not") != std::string::npos);  // named once
      std::size_t count = 0;
      for (std::size_t at = made.err.find("estimated for"); at != std::string::npos;
           at = made.err.find("estimated for", at + 1))
        ++count;
      return count;
    };
    const std::vector<std::string> both{"t1.json", "t2.json",      "--levels", "4@300GB/s",   "--memory",
                                        "80GiB",   "--mini-batch", "8",        "--optimizer", "adamw"};
    const auto run = [&](const std::string& command, const std::vector<std::string>& more) {
      std::vector<std::string> arguments{command};
      arguments.insert(arguments.end(), both.begin(), both.end());
      arguments.insert(arguments.end(), more.begin(), more.end());
      return pp::test::run_checked(pp::test::program("pp-plan"), arguments, folder.path());
    };
    CHECK(warnings(run("make", {})) == 1);
    CHECK(warnings(run("sweep", {"--micro-batches", "8"})) == 1);
  }

  TEST_CASE(
      "what is beyond the measured steps is said: more positions, another trainer; a limit above memory is "
      "refused") {
    const Folder folder;
    const Outcome estimated = pp::test::run_checked(
        pp::test::program("pp-profile"),
        {"estimate", "llama:layers=2,width=64,heads=2,kv_heads=2,hidden=64,vocabulary=512", "--context",
         "16384", "--device-spec", "h100", "--dtype", "bfloat16", "--micro-batch-sizes", "1", "--trainer",
         "nemo", "-q", "-o", "long.json"},
        folder.path());
    REQUIRE(estimated.code == 0);
    const auto plan = [&](std::vector<std::string> more) {
      std::vector<std::string> arguments{"long.json", "--devices",    "2", "--bandwidth", "100GB/s", "--memory",
                                         "80GiB",     "--mini-batch", "4"};
      arguments.insert(arguments.end(), more.begin(), more.end());
      return pp::test::run_checked(pp::test::program("pp-plan"), arguments, folder.path()).err;
    };
    CHECK(plan({}).find("the model's 16384 positions are more than the 8192 of the longest") !=
          std::string::npos);
    CHECK(plan({"--for", "megatron"}).find("steps by") == std::string::npos);
    CHECK(plan({"--for", "torchtitan"}).find("--for torchtitan: the profile's times are of steps by nemo") !=
          std::string::npos);
    CHECK(plan({"--cuts", "even", "--stages", "2", "-o", "even.json"}).find("error") == std::string::npos);
    const Json even = pp::parse_json(pp::read_file(folder.path() / "even.json"));
    CHECK(even["stages"][1]["layers"][0].get<std::string>().starts_with("model.layers.1."));
    CHECK(plan({"--cuts", "even"}).find("--cuts even: into how many stages? Add --stages") !=
          std::string::npos);
    CHECK(plan({"--cuts", "even", "--stages", "3"})
              .find("the model has 2 blocks, which 3 stages do not divide") != std::string::npos);
    CHECK(plan({"--memory-limit", "90GiB"}).find("--memory-limit 90 GiB is more than device 0 has, 80 GiB") !=
          std::string::npos);
  }

  TEST_CASE("where it does not fit the message says what helps") {
    // A block has 1.8e9 parameters of 8 bytes with gradients and AdamW's state: 98 layers of 14.5 GB do not fit
    // eight devices.
    const Folder folder;
    const Outcome made = folder.plan({"--devices", "8", "--bandwidth", "300GB/s", "--mini-batch", "8"});
    CHECK(made.code == 3);
    CHECK(made.err.find("no feasible plan: does not fit: stage ") != std::string::npos);
    CHECK(made.err.find("this would fit: ") != std::string::npos);
  }
}

}  // namespace estimated_plan_test
