// The main job through the three binaries on a GPU; chain.txt has it on CPUs.
#include <filesystem>

#include "libprofile/core/file.h"
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
  Outcome train(const std::string& plan_file, std::vector<std::string> more) const {
    std::vector<std::string> arguments{plan_file, "--data", pp::test::repository("configs/data/digits")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run("pp-run", arguments);
  }
};

}  // namespace

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
