// Gradients of every op and loss against central differences, in float64.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <optional>
#include <vector>

#include "libprofile/model/gradient_sums.h"

#include "tests/libprofile/model/op_cases.h"
#include "tests/libprofile/model/op_run.h"
#include "tests/support/torch_test.h"

namespace gradient_test {

using namespace pp;
using namespace pp::model;
using namespace pp::model::test;

namespace {

/// d value / d variable by (f(x + h) - f(x - h)) / 2h in each element. h^2 times the third derivative and
/// 1e-16/h are both near 1e-10.
at::Tensor central_differences(const std::function<at::Tensor()>& value, const at::Tensor& variable) {
  constexpr double h = 1e-5;
  const c10::AutoGradMode no_grad(false);
  at::Tensor gradient = at::empty(variable.sizes(), at::kDouble);
  at::Tensor flat = variable.detach().view(-1);
  for (std::int64_t i = 0; i < flat.numel(); ++i) {
    const double x = flat[i].item<double>();
    flat[i].fill_(x + h);
    const double above = value().item<double>();
    flat[i].fill_(x - h);
    const double below = value().item<double>();
    flat[i].fill_(x);
    gradient.view(-1)[i].fill_((above - below) / (2 * h));
  }
  return gradient;
}

void check_gradients(const std::function<at::Tensor()>& value, std::vector<at::Tensor> variables) {
  for (at::Tensor& variable : variables) variable.requires_grad_();
  const auto analytic = torch::autograd::grad({value()}, variables);
  for (std::size_t i = 0; i < variables.size(); ++i) {
    CAPTURE(i);
    CHECK(analytic[i].allclose(central_differences(value, variables[i]), 1e-6, 1e-7));
  }
}

}  // namespace

TEST_SUITE("libprofile/model/gradients") {
  TEST_CASE("every op's gradients equal central differences") {
    for (const OpCase& op_case : op_cases()) {
      const std::string text = to_text(op_case);
      CAPTURE(text);
      const OpInstance op = instantiate(op_case, 2);
      auto generator = at::make_generator<at::CPUGeneratorImpl>(5);
      const at::Tensor weighting = at::empty(op()[0].sizes(), at::kDouble).normal_(0, 1, generator);
      std::vector<at::Tensor> variables = op.weights;
      for (const at::Tensor& input : op.inputs) {
        if (input.is_floating_point()) variables.push_back(input);
      }
      check_gradients([&] { return op()[0].mul(weighting).sum(); }, variables);
    }
  }

  TEST_CASE("a written backward gives what autograd gives") {
    int written = 0;
    auto generator = at::make_generator<at::CPUGeneratorImpl>(5);
    for (const OpCase& op_case : op_cases()) {
      const std::string text = to_text(op_case);
      CAPTURE(text);
      const OpInstance op = instantiate(op_case, 2);
      const std::optional<WrittenBackward> backward =
          bind_layer(op_case.op, complete(op_case.op, op_case.attributes)).backward;
      if (!backward || (backward->applies && !backward->applies(op.inputs))) continue;
      ++written;
      Tensors saved;
      for (const at::Tensor& weight : op.weights) weight.requires_grad_();
      const std::vector<at::Tensor> held = op.inputs;  // so that nothing is written over them
      const at::Tensor output = [&] {
        const c10::AutoGradMode no_grad(false);
        return op(&saved)[0];
      }();
      const at::Tensor gradient = at::empty(output.sizes(), at::kDouble).normal_(0, 1, generator);
      std::vector<at::Tensor> variables;
      for (const at::Tensor& input : op.inputs) {
        if (input.is_floating_point()) variables.push_back(input);
      }
      const std::size_t inputs = variables.size();
      variables.insert(variables.end(), op.weights.begin(), op.weights.end());
      for (at::Tensor& variable : variables) variable.requires_grad_();
      const auto expected = torch::autograd::grad({op()[0]}, variables, {gradient});

      const c10::AutoGradMode no_grad(false);
      if (backward->both) {
        const Tensors all = backward->both(saved, op.weights, gradient);
        REQUIRE(all.size() == expected.size());
        for (std::size_t i = 0; i < all.size(); ++i) CHECK(all[i].allclose(expected[i], 1e-12, 1e-12));
        continue;
      }
      // As a whole, and the weight gradient alone as of a first layer; each twice into the same sums.
      std::vector<at::Tensor> sums(op.weights.size());
      WeightSums weights(op.weights, sums, {});
      for (const bool alone : {false, true}) {
        Tensors left = saved;
        if (!alone) {
          Tensors found = backward->inputs(left, op.weights, gradient);
          if (found.size() == 1) found.resize(op.inputs.size(), found[0]);
          CHECK(found.size() == op.inputs.size());
          for (std::size_t i = 0; i < inputs; ++i) CHECK(found[i].allclose(expected[i], 1e-12, 1e-12));
        }
        if (backward->weights) backward->weights(left, op.weights, gradient, weights);
        for (std::size_t i = 0; i < sums.size(); ++i)
          CHECK(sums[i].allclose(expected[inputs + i].mul(alone ? 2 : 1), 1e-12, 1e-12));
      }
    }
    CHECK(written > 12);
  }

  TEST_CASE("every loss's gradient equals central differences") {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(5);
    const at::Tensor prediction = at::empty({3, 2, 4}, at::kDouble).normal_(0, 1, generator);
    const at::Tensor classes = at::empty({3, 2}, at::kLong).random_(0, 4, generator);
    const at::Tensor numbers = at::empty({3, 2, 4}, at::kDouble).normal_(0, 1, generator);
    check_gradients([&] { return loss("cross_entropy", prediction, classes); }, {prediction});
    const at::Tensor shares = at::empty({3, 2, 4}, at::kDouble).uniform_(0, 1, generator);
    check_gradients([&] { return loss("binary_cross_entropy", prediction, shares); }, {prediction});
    check_gradients([&] { return loss("mse", prediction.detach(), numbers); }, {numbers});
    check_gradients([&] { return loss("mse", prediction, numbers); }, {prediction});
    const Attributes weights{{"geometry_weight", 0.5}, {"angle_weight", 2.0}};
    const at::Tensor maps = at::empty({3, 6, 2, 4}, at::kDouble).uniform_(0.1, 0.9, generator);
    const at::Tensor text = at::empty({3, 6, 2, 4}, at::kDouble).uniform_(0.1, 0.9, generator);
    check_gradients([&] { return loss("text_detection", maps, text, weights); }, {maps});
  }
}

}  // namespace gradient_test
