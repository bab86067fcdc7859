// pp-profile run: what it prints, and what it refuses, with the whole message.
#include <sched.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "libprofile/core/file.h"
#include "libprofile/core/json_reader.h"
#include "libprofile/core/profile.h"
#include "libprofile/device/build.h"
#include "libprofile/device/cuda_devices.h"
#include "tests/apps/run_checked.h"
#include "tests/support/places.h"

#include "tests/support/doctest.h"

namespace profile_run_test {
namespace {

using pp::test::Outcome;
using pp::test::TemporaryFolder;

struct Variant {
  int inputs = 4;
  bool idle = false;  ///< has a layer that nobody reads
};

/// x -> a -> b
std::string model_text(const Variant& variant = {}) {
  pp::Json model = pp::parse_json(R"({"format": "pp.model", "version": 1, "name": "small",
    "inputs": [{"name": "x", "dtype": "float32", "shape": [4]}],
    "layers": [{"name": "a", "op": "linear", "inputs": ["x"], "attributes": {"out_features": 3}},
               {"name": "b", "op": "relu", "inputs": ["a"]}],
    "outputs": ["b"]})");
  model["inputs"][0]["shape"] = {variant.inputs};
  if (variant.idle) model["layers"].push_back({{"name", "idle"}, {"op", "relu"}, {"inputs", {"a"}}});
  return model.dump();
}

struct Folder : TemporaryFolder {
  explicit Folder(const std::string& model = model_text()) { pp::write_file(path() / "model.json", model); }
  Outcome profile(std::vector<std::string> more) const {
    more.insert(more.begin(), {"model.json", "--quick"});
    return pp::test::run_checked(pp::test::program("pp-profile"), more, path());
  }
  pp::Profile document() const { return pp::parse_profile(pp::read_file(path() / "profile.json")); }
};

void refused(const Outcome& outcome, const std::string& message) {
  CHECK(outcome.code == 2);
  CHECK(outcome.out.empty());
  CHECK(outcome.err == "pp-profile: error: " + message + "\n");
}

/// As the message about a device that does not exist lists them.
std::string existing_devices() {
  cpu_set_t cores;
  sched_getaffinity(0, sizeof cores, &cores);
  std::string list = "cpu:0";
  for (int core = 1; core < CPU_COUNT(&cores); ++core) list += ", cpu:" + std::to_string(core);
  const int cuda = pp::profile::cuda_device_count();
  for (int device = 0; device < cuda; ++device) list += ", cuda:" + std::to_string(device);
  return cuda > 0 ? list : list + " (" + pp::profile::why_no_cuda() + ")";
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

  TEST_CASE("--memory-format is measured and recorded") {
    const Folder folder;
    const Outcome outcome =
        folder.profile({"--micro-batch-sizes", "2", "--memory-format", "channels_last", "-o", "profile.json"});
    CHECK(outcome.code == 0);
    CHECK(outcome.out.find("small: 2 layers, 15 parameters, float32, channels_last") == 0);
    CHECK(folder.document().memory_format == pp::MemoryFormat::channels_last);
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

  TEST_CASE("a device that does not exist is refused with those that do") {
    // The rest of the list depends on the machine: its cores, then its CUDA devices or why there are none.
    const std::string exist = existing_devices();
    refused(Folder().profile({"--device", "cpu:4000"}),
            "device \"cpu:4000\" does not exist; this machine has " + exist);
    refused(Folder().profile({"--device", "cuda:99"}),
            "device \"cuda:99\" does not exist; this machine has " + exist);
  }

  TEST_CASE("sizes beyond the memory stay in the document as points without times") {
    const Folder folder(model_text({.inputs = 1024}));
    // 1e9 samples of 1024 floats are 4 TB.
    const Outcome outcome =
        folder.profile({"--micro-batch-sizes", "2,1000000000", "--color", "never", "-o", "profile.json"});
    CHECK(outcome.code == 0);
    CHECK(outcome.err.find("micro-batch size 1000000000 and above do not fit into the device's ") !=
          std::string::npos);
    CHECK(outcome.err.find(": recorded as out of memory; leave these sizes out") != std::string::npos);
    const pp::Profile profile = folder.document();
    CHECK(profile.micro_batch_sizes == std::vector<std::int64_t>{2, 1000000000});
    pp::LayerPoint too_large;
    too_large.micro_batch_size = 1000000000;
    too_large.out_of_memory = true;
    for (const pp::LayerProfile& layer : profile.layers) {
      REQUIRE(layer.points.size() == 2);
      CHECK_FALSE(layer.points[0].out_of_memory);
      CHECK(layer.points[1] == too_large);
    }
    CHECK(profile.whole_model.size() == 1);
    const pp::Json json = pp::parse_json(pp::read_file(folder.path() / "profile.json"));
    CHECK(json["layers"][0]["points"][1] ==
          pp::Json{{"micro_batch_size", 1000000000}, {"out_of_memory", true}});
  }

  TEST_CASE("automatic sizes for isolated layers are refused") {
    refused(Folder().profile({"--micro-batch-sizes", "auto", "--mode", "isolated"}),
            "micro-batch sizes: auto would choose others for each layer alone; list them, such as 1,2,4");
  }

  TEST_CASE("a layer that nobody reads is refused") {
    refused(
        Folder(model_text({.idle = true})).profile({}),
        "model.json: /layers/2: nothing uses the output of \"idle\"; remove the layer, or add it to /outputs");
  }
}

}  // namespace profile_run_test
