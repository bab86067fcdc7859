// Models that scripts/import-torch has written, with what PyTorch computes of them (tests/data/import).
#include <filesystem>
#include <map>
#include <string>

#include "libprofile/core/file.h"
#include "librun/checkpoint/weights.h"
#include "librun/infer.h"
#include "tests/librun/folder.h"
#include "tests/librun/infer/silent.h"
#include "tests/librun/model_alone.h"
#include "tests/librun/reference.h"
#include "tests/librun/synthetic_options.h"
#include "tests/support/model_values.h"
#include "tests/support/places.h"
#include "tests/support/plans.h"
#include "tests/support/torch_test.h"

namespace imported_fixture_test {

using namespace pp;

namespace {

constexpr const char* kFixtures[] = {"attention",         "attention-blocks", "constants",   "decoder-gemma2",
                                     "decoder-gpt_neox",  "decoder-llama",    "decoder-phi", "decoder-qwen3",
                                     "decoder-torchtune", "pixels",           "residual",    "windows"};

using Tensors = std::map<std::string, at::Tensor>;

struct Fixture {
  explicit Fixture(const std::string& name)
      : weights_file(pp::test::test_data("import/" + name + ".weights.safetensors")),
        model(parse_model(read_file(pp::test::test_data("import/" + name + ".json")))),
        weights(read(weights_file)),
        golden(read(pp::test::test_data("import/" + name + ".golden.safetensors"))) {}

  static Tensors read(const std::filesystem::path& file) {
    Tensors tensors;
    for (auto& [key, tensor] : run::read_weights(file)) tensors.emplace(key, tensor);
    return tensors;
  }
  /// A boundary for each two stages.
  std::vector<int> cuts() const {
    std::vector<int> all;
    for (std::size_t layer = 1; layer < model.layers.size(); ++layer) all.push_back(static_cast<int>(layer));
    return all;
  }

  std::filesystem::path weights_file;
  ModelGraph model;
  Tensors weights, golden;
};

/// Relative to the largest value that is expected.
double difference(const at::Tensor& found, const at::Tensor& expected) {
  REQUIRE(found.sizes() == expected.sizes());
  return found.sub(expected).abs().max().item<double>() / expected.abs().max().item<double>();
}

/// The model's outputs for the golden inputs by a pipeline of two stages, or one.
test::NamedTensors infer(const Fixture& f, const std::vector<int>& cuts) {
  const TestFolder folder;
  test::NamedTensors inputs;
  for (const DataTensor& input : f.model.inputs) inputs.emplace_back(input.name, f.golden.at(input.name));
  test::write_tensors(folder.path() / "inputs.safetensors", inputs);
  run::InferOptions options;
  options.data = (folder.path() / "inputs.safetensors").string();
  options.initial_weights = f.weights_file;
  options.outputs = folder.path() / "outputs.safetensors";
  test::SilentInference observer;
  run::infer(make_plan({.model = f.model, .cuts = cuts}), options, observer);
  return run::read_weights(options.outputs);
}

}  // namespace

TEST_SUITE("librun/imported_fixture") {
  TEST_CASE("outputs, loss and gradients of imported models are PyTorch's") {
    for (const std::string name : kFixtures) {
      CAPTURE(name);
      const Fixture f(name);
      const auto weights = [&](const std::string& key, const Shape&) { return f.weights.at(key); };
      const auto data = [&](const DataTensor& tensor) { return f.golden.at(tensor.name); };
      const test::ModelValues values =
          test::model_values(f.model, DType::float32, {.weights = weights, .data = data});
      CHECK(difference(values.outputs.front(), f.golden.at("output")) < 1e-5);
      CHECK(difference(values.loss, f.golden.at("loss")) < 1e-5);
      for (const auto& [key, expected] : f.golden) {
        if (!key.starts_with("gradient.")) continue;
        CAPTURE(key);
        CHECK(difference(values.gradients.at(key.substr(9)), expected) < 1e-4);
      }
    }
  }

  TEST_CASE("inference of imported models gives PyTorch's outputs, the same bits for every cut") {
    for (const std::string name : kFixtures) {
      CAPTURE(name);
      const Fixture f(name);
      const test::NamedTensors whole = infer(f, {});
      REQUIRE(whole.size() == 1);
      CHECK(difference(whole.front().second, f.golden.at("output")) < 1e-5);
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
