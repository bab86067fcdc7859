// What the tools load: LibTorch to compute, its CUDA half for a CUDA device. The dynamic linker's own record
// says so.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "libprofile/device/build.h"
#include "tests/apps/run_checked.h"
#include "tests/apps/run_folder.h"
#include "tests/apps/sample_profile.h"
#include "tests/librun/imported_models.h"

#include "tests/support/doctest.h"
#include "tests/support/places.h"

namespace start_test {
namespace {

using pp::test::Outcome;

const std::filesystem::path kBin(pp::test::program());

struct Folder : pp::test::RunFolder {
  using RunFolder::RunFolder;

  /// Also writes which files the tool's process loads; loaded() reads it.
  Outcome run(const std::string& tool, std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"LD_DEBUG=files", "LD_DEBUG_OUTPUT=" + (path() / "loaded").string(),
                                         (kBin / tool).string()});
    return pp::test::run_checked("/usr/bin/env", arguments, path());
  }
  /// What the last run loaded of these libraries.
  std::set<std::string> loaded() const {
    std::set<std::string> names;
    for (const auto& file : std::filesystem::directory_iterator(path())) {
      if (!file.path().filename().string().starts_with("loaded.")) continue;
      const std::string text = pp::read_file(file.path());
      REQUIRE(text.find("libc.so") != std::string::npos);
      for (const char* name : {"libtorch_cpu.so", "libtorch_cuda.so", "libnccl.so", "libcudnn.so"}) {
        if (text.find(name) != std::string::npos) names.insert(name);
      }
      std::filesystem::remove(file.path());
    }
    return names;
  }
};

using Names = std::set<std::string>;
using Call = std::pair<std::string, std::vector<std::string>>;

}  // namespace

TEST_SUITE("apps/start") {
  TEST_CASE("commands that compute nothing load no LibTorch") {
    const Folder folder;
    constexpr std::array kTimes{4.0, 1.0};
    pp::Profile profile = pp::test::sample_profile(kTimes);
    pp::test::write_profile(folder.path(), profile);
    profile.micro_batch_sizes.pop_back();
    for (pp::LayerProfile& layer : profile.layers) layer.points.pop_back();
    pp::write_file(folder.path() / "fewer.json", pp::dump_json(to_json(profile)));
    pp::write_file(folder.path() / "hosts.txt", "one slots=2\n");
    pp::write_file(folder.path() / "graph.txt",
                   "node1 -- Linear(8, 8) -- forward_compute_time=1.0, backward_compute_time=2.0, "
                   "activation_size=64.0, parameter_size=128.0\n");
    REQUIRE(
        folder.run("pp-run", {"plan.json", "--data", "synthetic", "--steps", "1", "-o", "report.json"}).code ==
        0);
    REQUIRE(folder.loaded().contains("libtorch_cpu.so"));

    const std::vector<Call> calls{
        {"pp-run", {"--version"}},
        {"pp-run", {"--help"}},
        {"pp-run", {"train", "--help"}},
        {"pp-run", {"check", "plan.json", "--data", "synthetic"}},
        {"pp-run", {"report", "report.json"}},
        {"pp-run", {"launch", "plan.json", "--hosts", "hosts.txt", "--launcher", "mpirun", "--print"}},
        {"pp-profile", {"--version"}},
        {"pp-profile", {"--help"}},
        {"pp-profile", {"models"}},
        {"pp-profile", {"models", "lenet5", "-o", "model.json"}},
        {"pp-profile", {"show", "profile.json"}},
        {"pp-profile", {"diff", "profile.json", "profile.json"}},
        {"pp-profile", {"merge", "profile.json", "fewer.json", "--overlap", "second", "-o", "merged.json"}},
        {"pp-profile", {"import", "graph.txt", "-o", "imported.json"}},
        {"pp-plan", {"check", "plan.json"}},
        {"pp-plan", {"show", "plan.json"}}};
    for (const auto& [tool, arguments] : calls) {
      const Outcome outcome = folder.run(tool, arguments);
      const std::string called = tool + " " + arguments.front();
      CAPTURE(called);
      CAPTURE(outcome.err);
      CHECK(outcome.code == 0);
      CHECK(folder.loaded() == Names{});
    }
  }

  TEST_CASE("check asks LibTorch about a model's calls of it") {
    const Folder folder;
    const pp::plan::Plan plan = make_plan({.model = pp::test::imported_residual(), .cuts = {3}});
    pp::write_file(folder.path() / "imported.json", pp::dump_json(pp::plan::to_json(plan)));
    CHECK(folder.run("pp-run", {"check", "imported.json", "--data", "synthetic"}).code == 0);
    CHECK(folder.loaded() == Names{"libtorch_cpu.so"});
  }

  TEST_CASE("what is mistyped is refused without LibTorch") {
    const Folder folder;
    CHECK(folder.run("pp-run", {"plan.json", "--data", "synthetic", "--stepz", "1"}).code == 2);
    CHECK(folder.loaded() == Names{});
    CHECK(folder.run("pp-run", {"nowhere.json", "--data", "synthetic", "--steps", "1"}).code == 2);
    CHECK(folder.loaded() == Names{});
  }

  TEST_CASE("CPU devices need LibTorch without its CUDA half") {
    const Folder folder;
    const Names cpu{"libtorch_cpu.so"};
    REQUIRE(folder.run("pp-run", {"plan.json", "--data", "synthetic", "--steps", "1"}).code == 0);
    CHECK(folder.loaded() == cpu);
    REQUIRE(folder.run("pp-profile", {"lenet5:image=8", "--micro-batch-sizes", "4", "--quick", "-o", "p.json"})
                .code == 0);
    CHECK(folder.loaded() == cpu);
  }

  TEST_CASE("a CUDA device that is named needs the CUDA half, where the build has one") {
    const Folder folder({.cuts = {2}}, 8, [](pp::Json& plan) { plan["devices"][0]["kind"] = "cuda"; });
    folder.run("pp-run", {"check", "plan.json", "--data", "synthetic"});
    CHECK(folder.loaded().contains("libtorch_cuda.so") == !pp::profile::cuda_version().empty());
    folder.run("pp-profile",
               {"lenet5:image=8", "--device", "cuda:0", "--micro-batch-sizes", "4", "-o", "p.json"});
    CHECK(folder.loaded().contains("libtorch_cuda.so") == !pp::profile::cuda_version().empty());
  }

  TEST_CASE("a half that computes and cannot be loaded is named with what to do") {
    const Folder folder;
    const std::filesystem::path alone = folder.path() / "bin" / "pp-run";
    std::filesystem::create_directory(alone.parent_path());
    std::filesystem::copy_file(kBin / "pp-run", alone);
    const Outcome outcome =
        pp::test::run_checked(alone, {"plan.json", "--data", "synthetic", "--steps", "1"}, folder.path());
    const std::string module = (folder.path() / "lib" / "pp" / "pp-computing.so").string();
    CHECK(outcome.code == 2);
    CHECK(outcome.err ==
          "pp-run: error: " + module + " cannot be loaded: " + module +
              ": cannot open shared object file: No such file or directory; install LibTorch 2.11 "
              "by scripts/setup or by pip install torch==2.11.0, or set PP_LIBTORCH to the torch "
              "folder of an installed wheel\n");
    CHECK(pp::test::run_checked(alone, {"--version"}, folder.path()).code == 0);
  }

  TEST_CASE("PP_LIBTORCH names the LibTorch to take; a folder without one is refused") {
    const Folder folder;
    const auto train = [&](const std::string& torch) {
      return pp::test::run_program("/bin/sh",
                                   {"-c", "PP_LIBTORCH=" + torch + " " + (kBin / "pp-run").string() +
                                              " plan.json --data synthetic --steps 1 -q > /dev/null"},
                                   folder.path());
    };
    const Outcome refused = train("/no/torch");
    CHECK(refused.code == 2);
    CHECK(
        refused.err.starts_with("pp-run: error: PP_LIBTORCH: /no/torch has no lib/libtorch_cpu.so; install "
                                "LibTorch 2.11 by scripts/setup or "));
    CHECK(train(PP_LIBTORCH_OF_BUILD).code == 0);
  }
}

}  // namespace start_test
