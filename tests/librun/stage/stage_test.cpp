#include "librun/stage/stage.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "libprofile/core/error.h"
#include "libprofile/model/parameters.h"
#include "tests/librun/folder.h"
#include "tests/librun/model_alone.h"
#include "tests/librun/models.h"
#include "tests/support/called_operations.h"
#include "tests/support/torch_test.h"

namespace stage_test {

using namespace pp;
using namespace pp::run;

namespace {

// The first linear and tanh of a small mlp as a stage of its own, learning rate 1, no momentum.
struct FirstStage {
  ResolvedModel model = resolve(pp::test::mlp(1));
  Stage stage;
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(0);

  FirstStage() : stage(model, options()) {}
  static StageOptions options() {
    StageOptions options;
    options.layers = {0, 1};
    options.dtype = DType::float64;
    options.optimizer =
        std::make_unique<model::Optimizer>(OptimizerName::sgd, OptimizerSettings{{"momentum", 0}});
    return options;
  }
  at::Tensor weight() const { return stage.weights().layers.front().front().detach(); }
  void forward(int m) {
    std::vector<at::Tensor> inputs{at::full({2, 5}, 0.1 * (m + 1), at::kDouble)};
    stage.forward(m, m, inputs, {1, 0, m}, generator);
  }
  void backward(int m) {
    std::vector<model::Tensors> arrived{{at::full({2, 6}, 1.0, at::kDouble)}};
    stage.backward(m, arrived, 1.0);
  }
  void update() { stage.update(stage.version(), 1.0); }
};

StoredTensors stored_in(const TestFolder& folder, const NamedTensors& tensors) {
  pp::test::write_tensors(folder.path() / "given.safetensors", tensors);
  return StoredTensors(SafetensorsFile(folder.path() / "given.safetensors"));
}

}  // namespace

TEST_SUITE("librun/stage") {
  TEST_CASE("without passes in flight the update works in place") {
    FirstStage first;
    const void* storage = first.weight().data_ptr();
    const at::Tensor before = first.weight().clone();
    first.forward(0);
    first.backward(0);
    first.update();
    CHECK(first.weight().data_ptr() == storage);
    CHECK_FALSE(first.weight().equal(before));
    CHECK(first.stage.version() == 1);
    CHECK(first.stage.version_count() == 1);
  }

  TEST_CASE("a part of the optimizer's state is refused, none of it begins anew") {
    StageOptions options = FirstStage::options();
    options.optimizer = std::make_unique<model::Optimizer>(OptimizerName::sgd);
    const ResolvedModel model = resolve(pp::test::mlp(1));
    Stage stage(model, std::move(options));
    stage.restore({}, {});
    const TestFolder folder;
    const StoredTensors part =
        stored_in(folder, {{"fc0.weight.momentum_buffer", at::full({6, 5}, 1.0, at::kDouble)}});
    CHECK_THROWS_WITH_AS(
        stage.restore({}, part),
        "the optimizer's state \"momentum_buffer\" is there for 1 of 2 parameters; use a whole "
        "checkpoint",
        Error);
  }

  TEST_CASE("what is given is not drawn first") {
    const ResolvedModel model = resolve(pp::test::mlp(1));
    const TestFolder folder;
    const StoredTensors given = stored_in(folder, {{"fc0.weight", at::full({6, 5}, 3.0, at::kDouble)}});
    StageOptions options = FirstStage::options();
    options.given = &given;
    Stage stage(model, std::move(options));
    const auto weights = stage.weights().layers.front();
    CHECK(weights[0].equal(at::zeros({6, 5}, at::kDouble)));
    CHECK(weights[1].equal(model::initial_parameter(model, 0, 1, 1, DType::float64)));
    stage.restore(given, {});
    CHECK(weights[0].equal(at::full({6, 5}, 3.0, at::kDouble)));
  }

  TEST_CASE("a pass in flight keeps the version of its forward through updates") {
    FirstStage first;
    first.forward(0);
    first.forward(1);
    const at::Tensor old = first.weight();
    const at::Tensor before = old.clone();
    first.backward(0);
    first.update();
    CHECK(first.weight().data_ptr() != old.data_ptr());
    CHECK(old.equal(before));
    CHECK(first.stage.version_of(1) == 0);
    CHECK(first.stage.version_count() == 2);
    CHECK(first.stage.bytes().versions == first.stage.bytes().weights);
    first.backward(1);
    CHECK(first.stage.version_count() == 1);
    CHECK(first.stage.flight_count() == 0);
  }

  TEST_CASE("the gradient of an old pass is that of its version") {
    // Both passes on version 0: the second gradient must not see the first update, so it equals that of a stage
    // without one.
    FirstStage updated, plain;
    for (FirstStage* stage : {&updated, &plain}) {
      stage->forward(0);
      stage->forward(1);
      stage->backward(0);
    }
    const at::Tensor one = plain.stage.complete_gradient().clone();
    updated.update();
    updated.backward(1);
    plain.backward(1);
    // The updated stage has the second gradient alone, the other one the sum of both.
    const at::Tensor second = updated.stage.complete_gradient();
    CHECK(one.add(second).equal(plain.stage.complete_gradient()));
  }

  TEST_CASE("bytes are those of the tensors") {
    FirstStage first;
    // 6*5 and 6 doubles, each padded to a multiple of 64 bytes: 256 + 64.
    CHECK(first.stage.bytes().weights == Bytes(320));
    CHECK(first.stage.bytes().gradients == Bytes(320));
    CHECK(first.stage.bytes().versions == Bytes(0));
    first.forward(0);
    first.backward(0);
    first.update();
    CHECK(first.stage.bytes().optimizer == Bytes(0));
  }

  TEST_CASE("a parameter without a gradient is updated with zero") {
    FirstStage first;
    const at::Tensor before = first.weight().clone();
    first.update();
    CHECK(first.weight().equal(before));
    CHECK(first.stage.version() == 1);
  }

  // A device would be waited for at every number that the host reads, and works on one tensor at a time.
  TEST_CASE("norms are read together, and the gradient is scaled as the one vector that it is") {
    FirstStage first;
    first.forward(0);
    first.backward(0);
    const pp::test::CalledOperations called;
    const std::vector<Stage::SquareNorm> norms = first.stage.square_norms();
    CHECK(pp::test::CalledOperations::count("aten::_local_scalar_dense") == 0);
    const FlatTensors gradient = first.stage.update_gradient();
    REQUIRE(norms.size() == 2);
    for (std::size_t i = 0; i < norms.size(); ++i) {
      const double norm = gradient.parameters[i].norm().item<double>();
      REQUIRE(norms[i].squares.size() == 1);
      CHECK(norms[i].squares.front() == doctest::Approx(norm * norm).epsilon(1e-5));
    }
    const at::Tensor half = gradient.flat.mul(0.5);
    pp::test::CalledOperations::names().clear();
    first.stage.scale_gradient(0.5);
    CHECK(pp::test::CalledOperations::count("aten::mul_") == 1);
    CHECK(first.stage.update_gradient().flat.equal(half));
  }
}

}  // namespace stage_test
