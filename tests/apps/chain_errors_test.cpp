// What pp-profile and pp-run refuse before any work starts.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "libprofile/core/file.h"
#include "libprofile/core/json_reader.h"
#include "tests/apps/run_checked.h"
#include "tests/support/places.h"

#include "tests/support/doctest.h"

namespace chain_errors_test {
namespace {

using pp::test::Outcome;
using pp::test::TemporaryFolder;

struct Folder : TemporaryFolder {
  Outcome run(const std::string& tool, std::vector<std::string> arguments) const {
    return pp::test::run_checked(pp::test::program(tool), arguments, path());
  }
  Outcome profile_model(const pp::Json& model) const {
    pp::write_file(path() / "model.json", model.dump());
    return run("pp-profile", {"model.json", "--quick"});
  }
  bool has(const std::string& name) const { return std::filesystem::exists(path() / name); }
};

/// A valid model of two layers, to be spoiled.
pp::Json small_model() {
  return pp::parse_json(R"({"format": "pp.model", "version": 1, "name": "small",
    "inputs": [{"name": "x", "dtype": "float32", "shape": [4]}],
    "layers": [{"name": "a", "op": "linear", "inputs": ["x"], "attributes": {"out_features": 3}},
               {"name": "b", "op": "relu", "inputs": ["a"]}],
    "outputs": ["b"]})");
}

void refused(const Outcome& outcome, std::initializer_list<std::string_view> parts) {
  CAPTURE(outcome.err);
  CHECK(outcome.code == 2);
  CHECK(outcome.out.empty());
  for (std::string_view part : parts) CHECK(outcome.err.find(part) != std::string::npos);
}

}  // namespace

TEST_SUITE("apps/chain_errors") {
  TEST_CASE("the small model itself can be profiled") {
    CHECK(Folder().profile_model(small_model()).code == 0);
  }

  TEST_CASE("unknown options and commands are named before what is missing") {
    const Folder folder;
    const auto error = [&](const std::string& tool, const std::vector<std::string>& arguments) {
      const Outcome outcome = folder.run(tool, arguments);
      CHECK(outcome.code == 2);
      return outcome.err;
    };
    CHECK(error("pp-run", {"plan.json", "--stpes", "3"}) ==
          "pp-run: error: unknown option --stpes; did you mean --steps? See pp-run train --help\n");
    CHECK(error("pp-run", {"chekc", "plan.json"}) ==
          "pp-run: error: unknown command chekc; did you mean check? The commands are train, infer, check, "
          "launch, devices, report, completion, manual\n");
    CHECK(error("pp-profile", {"lniks"})
              .starts_with("pp-profile: error: unknown command lniks; did you mean links?"));
    CHECK(error("pp-profile", {"lenet5", "--devcie", "cpu:0"}) ==
          "pp-profile: error: unknown option --devcie; did you mean --device? See pp-profile run --help\n");
  }

  TEST_CASE("numbers out of range are told the range in words") {
    const Folder folder;
    for (const std::string value : {"-1", "nan", "inf", "1e999", "fast"}) {
      CHECK(folder.run("pp-run", {"plan.json", "--data", "synthetic", "--lr=" + value}).err ==
            "pp-run: error: --learning-rate: \"" + value +
                "\" is not a number of at least 0; see pp-run train --help\n");
    }
    CHECK(folder.run("pp-profile", {"lenet5", "--precision", "0.9"}).err ==
          "pp-profile: error: --precision: \"0.9\" is not a number from 0.001 to 0.5; see pp-profile run "
          "--help\n");
  }

  TEST_CASE("an unknown operation names its place and the known ones") {
    pp::Json model = small_model();
    model["layers"][1]["op"] = "conv9d";
    refused(Folder().profile_model(model), {"model.json: /layers/1/op", "conv9d", "conv2d"});
  }

  TEST_CASE("a shape that does not fit") {
    pp::Json model = small_model();
    model["layers"][1]["op"] = "conv2d";
    model["layers"][1]["attributes"] = {{"out_channels", 2}, {"kernel_size", 3}};
    refused(Folder().profile_model(model), {"model.json: /layers/1", "[3]"});
  }

  TEST_CASE("a cycle") {
    pp::Json model = small_model();
    model["layers"][0]["inputs"][0] = "b";
    refused(Folder().profile_model(model), {"model.json: /layers/0/inputs/0", "cycle"});
  }

  TEST_CASE("a duplicate name") {
    pp::Json model = small_model();
    model["layers"][1]["name"] = "a";
    refused(Folder().profile_model(model), {"model.json: /layers/1/name", "\"a\""});
  }

  TEST_CASE("an unknown family lists the families") {
    refused(Folder().run("pp-profile", {"lenet6"}), {"lenet6", "lenet5", "resnet18"});
  }

  TEST_CASE("a device that does not exist lists those that do") {
    refused(Folder().run("pp-profile", {"lenet5", "--device", "cuda:7"}), {"cuda:7", "cpu"});
  }

  TEST_CASE("micro-batch sizes that are no counts") {
    refused(Folder().run("pp-profile", {"lenet5", "--micro-batch-sizes", "4,0"}),
            {"--micro-batch-sizes", "\"0\""});
  }

  TEST_CASE("missing data names the file, and nothing is written") {
    const Folder folder;
    REQUIRE(
        folder
            .run("pp-profile", {"lenet5:image=8", "--quick", "--micro-batch-sizes", "8", "-o", "profile.json"})
            .code == 0);
    REQUIRE(folder.run("pp-plan", {"profile.json", "--devices", "1", "--mini-batch", "8", "-o", "plan.json"})
                .code == 0);
    refused(
        folder.run("pp-run", {"plan.json", "--data", "no-such-folder", "--steps", "1", "-o", "report.json"}),
        {"no-such-folder"});
    CHECK_FALSE(folder.has("report.json"));
    refused(folder.run("pp-run", {"plan.json", "--data", pp::test::repository("configs/data/digits"), "--steps",
                                  "1", "-o", "missing/report.json"}),
            {"missing/report.json"});
  }

  TEST_CASE("data of another shape than the model's input") {
    const Folder folder;
    REQUIRE(folder.run("pp-profile", {"lenet5", "--quick", "--micro-batch-sizes", "8", "-o", "profile.json"})
                .code == 0);
    REQUIRE(folder.run("pp-plan", {"profile.json", "--devices", "1", "--mini-batch", "8", "-o", "plan.json"})
                .code == 0);
    refused(folder.run("pp-run",
                       {"plan.json", "--data", pp::test::repository("configs/data/digits"), "--steps", "1"}),
            {"train-images.idx", "28"});
  }

  TEST_CASE("a plan whose layers are not those of its model") {
    const Folder folder;
    REQUIRE(
        folder
            .run("pp-profile", {"lenet5:image=8", "--quick", "--micro-batch-sizes", "8", "-o", "profile.json"})
            .code == 0);
    REQUIRE(folder.run("pp-plan", {"profile.json", "--devices", "1", "--mini-batch", "8", "-o", "plan.json"})
                .code == 0);
    pp::Json plan = pp::parse_json(pp::read_file(folder.path() / "plan.json"));
    plan["stages"][0]["layers"][0] = "conv9";
    pp::write_file(folder.path() / "plan.json", plan.dump());
    refused(folder.run("pp-run", {"check", "plan.json", "--data", "synthetic"}),
            {"plan.json: /stages/0/layers", "conv9"});
  }
}

}  // namespace chain_errors_test
