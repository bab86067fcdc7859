// pp-profile run: what it prints, and what it refuses, with the whole message.
#include <filesystem>

#include "libprofile/core/file.h"
#include "libprofile/core/json_reader.h"
#include "libprofile/core/profile.h"
#include "tests/support/process.h"

#include "tests/support/doctest.h"

namespace {

using pp::test::Outcome;
using pp::test::TemporaryFolder;

/// x -> a -> b, and with `idle` a layer that nobody reads.
std::string model_text(bool idle) {
  pp::Json model = pp::parse_json(R"({"format": "pp.model", "version": 1, "name": "small",
    "inputs": [{"name": "x", "dtype": "float32", "shape": [4]}],
    "layers": [{"name": "a", "op": "linear", "inputs": ["x"], "attributes": {"out_features": 3}},
               {"name": "b", "op": "relu", "inputs": ["a"]}],
    "outputs": ["b"]})");
  if (idle) model["layers"].push_back({{"name", "idle"}, {"op", "relu"}, {"inputs", {"a"}}});
  return model.dump();
}

struct Folder : TemporaryFolder {
  explicit Folder(bool idle = false) { pp::write_file(path() / "model.json", model_text(idle)); }
  Outcome profile(std::vector<std::string> more) const {
    more.insert(more.begin(), {"model.json", "--quick"});
    return pp::test::run_program(std::filesystem::path(PP_BIN) / "pp-profile", more, path());
  }
  pp::Profile document() const { return pp::parse_profile(pp::read_file(path() / "profile.json")); }
};

void refused(const Outcome& outcome, const std::string& message) {
  CHECK(outcome.code == 2);
  CHECK(outcome.out.empty());
  CHECK(outcome.err == "pp-profile: error: " + message + "\n");
}

}  // namespace

TEST_SUITE("apps/profile_run") {
  TEST_CASE("-q with -o prints nothing, -o alone a table") {
    const Folder folder;
    const Outcome quiet = folder.profile({"--micro-batch-sizes", "2", "-q", "-o", "profile.json"});
    CHECK(quiet.code == 0);
    CHECK(quiet.out.empty());
    CHECK(quiet.err.empty());
    CHECK(folder.document().micro_batch_sizes == std::vector<std::int64_t>{2});
    const Outcome plain = folder.profile({"--micro-batch-sizes", "2", "-o", "profile.json"});
    CHECK(plain.out.find("small: 2 layers, 15 parameters, float32") == 0);
  }

  TEST_CASE("--mode isolated measures the layers without a whole") {
    const Folder folder;
    CHECK(
        folder.profile({"--micro-batch-sizes", "1,2", "--mode", "isolated", "-q", "-o", "profile.json"}).code ==
        0);
    CHECK(folder.document().mode == pp::ProfileMode::isolated);
    CHECK(folder.document().layers.size() == 2);
    CHECK(folder.document().whole_model.empty());
  }

  TEST_CASE("a micro-batch of no samples is refused") {
    refused(Folder().profile({"--micro-batch-sizes", "0,1"}),
            "--micro-batch-sizes: \"0\" is not a whole number of at least 1; write for example 1,2");
  }

  TEST_CASE("automatic sizes for isolated layers are refused") {
    refused(Folder().profile({"--micro-batch-sizes", "auto", "--mode", "isolated"}),
            "micro-batch sizes: auto would choose others for each layer alone; list them, such as 1,2,4");
  }

  TEST_CASE("a layer that nobody reads is refused") {
    refused(
        Folder(/*idle=*/true).profile({}),
        "model.json: /layers/2: nothing uses the output of \"idle\"; remove the layer, or add it to /outputs");
  }
}
