// The kernels of products and convolutions: each against float64, by key alone, in the calling thread alone.
#include "libprofile/model/kernels/kernels.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <random>
#include <thread>

#include "libprofile/device/compute_device.h"
#include "tests/libprofile/model/harness.h"
#include "tests/libprofile/model/models.h"
#include "tests/libprofile/model/op_cases.h"
#include "tests/support/called_operations.h"
#include "tests/support/torch_test.h"

namespace kernels_test {

using namespace pp::model;
using pp::DType;
using pp::Kernel;
using pp::KernelChoice;
using pp::KernelKey;
using pp::KernelTask;
using pp::ProductLayout;

namespace {

KernelKey random_key(std::mt19937& random) {
  const auto draw = [&](std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution(least, most)(random);
  };
  // Small ones, ones, and some beyond what a kernel takes in one block.
  const auto side = [&] { return draw(0, 3) == 0 ? 1 : draw(0, 3) == 0 ? draw(1, 300) : draw(1, 40); };
  const auto task = static_cast<KernelTask>(draw(0, 7));
  if (is_product(task)) {
    KernelKey key{task, DType::float32, static_cast<ProductLayout>(draw(0, 3)), {side(), side(), side()}};
    if (task == KernelTask::batched_product) key.sizes[3] = draw(1, 4);
    return key;
  }
  const std::int64_t kernel = draw(1, 3), width = draw(1, 3), dilation = draw(1, 2);
  const std::int64_t reach = dilation * 2 + 1;
  return {task,
          DType::float32,
          {},
          {draw(1, 3), draw(1, 20), reach + draw(0, 4), reach + draw(0, 4), draw(40, 200), kernel, width,
           draw(0, kernel - 1), draw(0, width - 1), draw(1, 2), dilation}};
}

at::Tensor in_float64(const KernelKey& key, const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> wide;
  for (const at::Tensor& input : inputs) wide.push_back(input.detach().to(at::kDouble));
  const auto& sizes = key.sizes;
  const std::array<std::int64_t, 2> padding{sizes[7], sizes[8]};
  const auto gradients = [&](std::array<bool, 3> wanted) {
    return at::convolution_backward(wide[2], wide[0], wide[1], at::OptionalIntArrayRef(), sizes[9], padding,
                                    sizes[10], false, 0, 1, wanted);
  };
  switch (key.task) {
    case KernelTask::product:
    case KernelTask::product_into: return at::mm(wide[0], wide[1]);
    case KernelTask::product_with_bias:
    case KernelTask::product_added: return at::mm(wide[0], wide[1]).add(wide[2]);
    case KernelTask::batched_product: return at::bmm(wide[0], wide[1]);
    case KernelTask::convolution: return at::conv2d(wide[0], wide[1], {}, sizes[9], padding, sizes[10]);
    case KernelTask::convolution_input_gradient: return std::get<0>(gradients({true, false, false}));
    case KernelTask::convolution_weight_gradient: return std::get<1>(gradients({false, true, false}));
  }
  return {};
}

/// Of entries of size 1, so many that are added up.
double tolerance(const KernelKey& key) {
  const double terms = is_product(key.task) ? static_cast<double>(key.sizes[1]) : 200.0;
  return 2e-6 * (8 + std::sqrt(terms) * 4);
}

void check_kernel(const KernelKey& key, Kernel kernel, std::uint64_t seed) {
  CAPTURE(name_of(key.task));
  CAPTURE(name_of(key.layout));
  CAPTURE(std::vector<std::int64_t>(key.sizes.begin(), key.sizes.end()));
  CAPTURE(name_of(kernel));
  const KernelCall call = make_call(key, pp::profile::make_generator(at::kCPU, seed));
  const at::Tensor expected = in_float64(key, call.inputs);
  const std::array choices{KernelChoice{key, kernel, std::nullopt}};
  const Kernels kernels(choices);
  const UseKernels use(&kernels);
  const at::Tensor found = call.run();
  REQUIRE(found.sizes() == expected.sizes());
  CHECK(found.to(at::kDouble).sub(expected).abs().max().item().toDouble() < tolerance(key));
}

/// The choice of oneDNN for every product of a key set.
std::vector<KernelChoice> all_onednn(const KernelKeys& keys) {
  std::vector<KernelChoice> choices;
  for (const KernelKey& key : keys)
    if (is_product(key.task)) choices.push_back({key, Kernel::onednn, std::nullopt});
  return choices;
}

}  // namespace

TEST_SUITE("libprofile/model/kernels") {
  TEST_CASE("every kernel of a table agrees with float64 on random shapes and layouts") {
    std::mt19937 random(44);
    for (int i = 0; i < 1500; ++i) {
      const KernelKey key = random_key(random);
      for (const Kernel kernel : kernels_of(key.task)) check_kernel(key, kernel, static_cast<std::uint64_t>(i));
    }
  }

  TEST_CASE("a product takes the kernel of its key, with whatever leads to it, and of no other") {
    // x w^T with a bias: [5, 7] by the transpose of [3, 7].
    const KernelKey key{KernelTask::product_with_bias, DType::float32, ProductLayout::nt, {5, 7, 3}};
    const Kernels kernels(std::array{KernelChoice{key, Kernel::onednn, std::nullopt}});
    const at::Tensor x = at::randn({5, 7}), weight = at::randn({3, 7}), bias = at::randn({3});
    const pp::test::TorchCalls calls(pp::test::kOneDnnProduct);
    at::addmm(bias, x, weight.t());
    CHECK(calls.count() == 0);  // no scope
    const UseKernels use(&kernels);
    at::addmm(bias, x, weight.t());
    CHECK(calls.count() == 1);
    at::mm(x, weight.t());                           // another task
    at::addmm(bias, x, weight.t().contiguous());     // another layout
    at::addmm(bias, at::randn({6, 7}), weight.t());  // other sizes
    at::addmm(bias, x, weight.t(), /*beta=*/2);      // another sum
    at::addmm(bias.to(at::kDouble), x.to(at::kDouble), weight.t().to(at::kDouble));
    CHECK(calls.count() == 1);
    {
      const UseKernels usual(nullptr);
      at::addmm(bias, x, weight.t());
      CHECK(calls.count() == 1);
    }
    std::thread([&] { at::addmm(bias, x, weight.t()); }).join();
    CHECK(calls.count() == 1);  // the scope is this thread's
    at::addmm(bias, x, weight.t());
    CHECK(calls.count() == 2);
  }

  TEST_CASE("empty matrices, and such as are not dense, have no choice") {
    KernelKeys keys;
    const RecordKernels record(keys);
    CHECK(at::mm(at::randn({0, 4}), at::randn({4, 3})).numel() == 0);
    CHECK(at::mm(at::randn({2, 0}), at::randn({0, 3})).equal(at::zeros({2, 3})));
    const at::Tensor wide = at::randn({4, 9}), right = at::randn({3, 5});
    const at::Tensor part = wide.narrow(1, 2, 3);
    const at::Tensor exact = at::mm(part.to(at::kDouble), right.to(at::kDouble)).to(at::kFloat);
    CHECK(at::mm(part, right).allclose(exact, /*rtol=*/1e-5, /*atol=*/1e-6));
    CHECK(keys.empty());
    at::mm(part.contiguous(), right);
    CHECK(keys == KernelKeys{{KernelTask::product, DType::float32, ProductLayout::nn, {4, 3, 5}}});
  }

  // [6, 3 2 2] times what 2 samples of 3 x 4 outputs read.
  TEST_CASE("a convolution that is a product asks for the kernel of that product, with a bias and without") {
    const KernelKey convolution{KernelTask::convolution, DType::float32, {}, {2, 3, 4, 5, 6, 2, 2, 0, 0, 1, 1}};
    const Kernels as_product(std::vector{KernelChoice{convolution, Kernel::product, std::nullopt}});
    for (const bool biased : {false, true}) {
      CAPTURE(biased);
      const pp::Attributes attributes = pp::model::test::complete(
          "conv2d", {{"out_channels", std::int64_t{6}}, {"kernel_size", std::int64_t{2}}, {"bias", biased}});
      const Forward forward = bind_layer("conv2d", attributes).forward;
      std::vector<at::Tensor> weights{at::randn({6, 3, 2, 2})};
      if (biased) weights.push_back(at::randn({6}));
      const std::vector<at::Tensor> inputs{at::randn({2, 3, 4, 5})};
      LayerContext context;
      const at::Tensor usual = forward(inputs, weights, context)[0];
      KernelKeys keys;
      const UseKernels use(&as_product);
      const RecordKernels record(keys);
      CHECK(forward(inputs, weights, context)[0].allclose(usual, /*rtol=*/1e-5, /*atol=*/1e-5));
      CHECK(keys.contains({KernelTask::product, DType::float32, ProductLayout::nn, {6, 12, 24}}));
    }
  }

  TEST_CASE("wherever a model is cut, the same kernels run: the same bits, near those without a choice") {
    for (const pp::ResolvedModel& model : {pp::model::test::residual_model(), pp::model::test::language_model(),
                                           pp::model::test::branching_model()}) {
      pp::model::test::Job job{.model = &model};
      const auto one_stage = pp::model::test::cut_at(model, {});
      const pp::model::test::Outcome usual = pp::model::test::run_stages(job, one_stage);
      KernelKeys keys;
      {
        const RecordKernels record(keys);
        pp::model::test::run_stages(job, one_stage);
      }
      std::vector<KernelChoice> choices = all_onednn(keys);
      REQUIRE(!choices.empty());
      for (const KernelKey& key : keys) {  // and each convolution the other way
        if (!is_product(key.task)) choices.push_back({key, Kernel::product, std::nullopt});
      }
      job.kernels = std::make_shared<const Kernels>(choices);
      const pp::test::TorchCalls calls(pp::test::kOneDnnProduct);
      const pp::model::test::Outcome chosen = pp::model::test::run_stages(job, one_stage);
      CHECK(calls.count() > 0);
      CHECK(pp::model::test::largest_difference(usual, chosen) < 1e-4);
      for (const auto& stages : {one_stage, pp::model::test::cut_at(model, {model.layer_count() / 2}),
                                 pp::model::test::cut_at(model, {1, 2, model.layer_count() - 1})}) {
        CHECK(pp::model::test::difference(chosen, pp::model::test::run_stages(job, stages)) == "");
        const std::vector<int> again{0, model.layer_count() / 2};
        CHECK(pp::model::test::difference(
                  pp::model::test::run_stages(job, one_stage, pp::model::test::Halves::apart),
                  pp::model::test::run_stages(job, stages, pp::model::test::Halves::apart, again)) == "");
      }
    }
  }
}

}  // namespace kernels_test
