// Models that scripts/import-torch has written and compared with their modules (tests/data/import).
#include <filesystem>
#include <string>

#include "libprofile/core/file.h"
#include "librun/checkpoint/weights.h"
#include "librun/infer.h"
#include "tests/librun/folder.h"
#include "tests/librun/infer/silent.h"
#include "tests/librun/model_alone.h"
#include "tests/librun/reference.h"
#include "tests/librun/synthetic_options.h"
#include "tests/support/places.h"
#include "tests/support/plans.h"
#include "tests/support/torch_test.h"

namespace imported_fixture_test {

using namespace pp;

namespace {

constexpr const char* kFixtures[] = {"attention",         "attention-blocks", "constants",   "decoder-gemma2",
                                     "decoder-gpt_neox",  "decoder-llama",    "decoder-phi", "decoder-qwen3",
                                     "decoder-torchtune", "pixels",           "residual",    "windows"};

struct Fixture {
  explicit Fixture(const std::string& name)
      : weights_file(pp::test::test_data("import/" + name + ".weights.safetensors")),
        model(parse_model(read_file(pp::test::test_data("import/" + name + ".json")))) {}

  /// A boundary for each two stages.
  std::vector<int> cuts() const {
    std::vector<int> all;
    for (std::size_t layer = 1; layer < model.layers.size(); ++layer) all.push_back(static_cast<int>(layer));
    return all;
  }

  std::filesystem::path weights_file;
  ModelGraph model;
};

/// The model's outputs for synthetic inputs by a pipeline of two stages, or one.
test::NamedTensors infer(const Fixture& f, const std::vector<int>& cuts) {
  const TestFolder folder;
  run::InferOptions options;
  options.data = "synthetic";
  options.synthetic_samples = 3;
  options.initial_weights = f.weights_file;
  options.outputs = folder.path() / "outputs.safetensors";
  test::SilentInference observer;
  run::infer(make_plan({.model = f.model, .cuts = cuts}), options, observer);
  return run::read_weights(options.outputs);
}

}  // namespace

TEST_SUITE("librun/imported_fixture") {
  TEST_CASE("inference of imported models gives the same bits for every cut") {
    for (const std::string name : kFixtures) {
      CAPTURE(name);
      const Fixture f(name);
      const test::NamedTensors whole = infer(f, {});
      REQUIRE(whole.size() == 1);
      for (const int cut : f.cuts()) {
        CAPTURE(cut);
        CHECK(test::first_difference(whole, infer(f, {cut})) == "");
      }
    }
  }

  TEST_CASE("bfloat16 training of imported models equals the single device bit for bit, for every cut") {
    for (const std::string name : kFixtures) {
      CAPTURE(name);
      const Fixture f(name);
      run::RunOptions options = pp::test::synthetic_options(3);
      options.initial_weights = f.weights_file;
      options.evaluate = false;
      PlanSpec spec{.model = f.model, .dtype = DType::bfloat16};
      const test::Run whole = test::run_plan(make_plan(spec), options);
      for (const auto& [key, tensor] : whole.tensors) {
        if (tensor.is_floating_point()) CHECK((tensor.scalar_type() == at::kBFloat16));
      }
      for (const int cut : f.cuts()) {
        CAPTURE(cut);
        spec.cuts = {cut};
        const test::Run found = test::run_plan(make_plan(spec), options);
        CHECK(test::first_difference(whole.tensors, found.tensors) == "");
        CHECK(found.report.step_losses == whole.report.step_losses);
      }
    }
  }
}

}  // namespace imported_fixture_test
