// scripts/bench convolution: convolutions as products of matrices beside LibTorch's, on one thread: where do
// the two ways cross? Of the last blocks of VGG16 and ResNet-50, for micro-batches of 1 to 32 samples.
#include <ATen/Parallel.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <array>
#include <iomanip>
#include <iostream>
#include <vector>

#include "libprofile/device/process.h"
#include "libprofile/model/ops/convolution_kernels.h"
#include "tests/lab/bench/measure.h"

namespace {

using namespace pp::model;

struct Shape {
  std::int64_t in, out, side, kernel, stride;
};
constexpr Shape kShapes[] = {
    {512, 512, 2, 3, 1},  {512, 512, 4, 3, 1}, {256, 512, 4, 3, 1},  {256, 256, 8, 3, 1}, {512, 2048, 2, 1, 1},
    {2048, 512, 2, 1, 1}, {256, 256, 4, 3, 1}, {1024, 256, 4, 1, 1}, {128, 512, 8, 1, 1}, {128, 128, 8, 3, 1}};

template <class One, class Other>
double ratio(One one, Other other) {
  pp::bench::Sample ratios;
  one(), other();
  for (int round = 0; round < 9; ++round)
    ratios.values.push_back(pp::bench::cpu_seconds_of(one) / pp::bench::cpu_seconds_of(other));
  return ratios.median();
}

void compare(const Shape& shape, std::int64_t n) {
  const std::int64_t padding = shape.kernel / 2;
  const ops::Convolution c{{padding, padding}, shape.stride, 1, 1};
  const at::Tensor x = at::randn({n, shape.in, shape.side, shape.side});
  const at::Tensor weight = at::randn({shape.out, shape.in, shape.kernel, shape.kernel});
  const at::Tensor bias = at::randn({shape.out});
  const at::Tensor gradient = at::randn_like(at::conv2d(x, weight, bias, c.stride, c.padding));
  const auto back = [&](std::array<bool, 3> wanted) {
    return at::convolution_backward(gradient, x, weight, at::OptionalIntArrayRef(bias.sizes()), c.stride,
                                    c.padding, 1, false, 0, 1, wanted);
  };
  const std::vector<at::Tensor> weights{at::Tensor(weight.detach().requires_grad_())};
  std::vector<at::Tensor> sums{at::zeros_like(weight)};
  WeightSums sum(weights, sums, {});
  const double forward = ratio([&] { ops::convolve_by_product(c, x, weight, bias); },
                               [&] { at::conv2d(x, weight, bias, c.stride, c.padding); });
  const double input = ratio([&] { ops::input_gradient_by_product(c, gradient, x, weight); },
                             [&] {
                               back({true, false, false});
                             });
  const double by_weight = ratio([&] { ops::add_weight_gradient_by_product(c, gradient, x, weight, sum); },
                                 [&] {
                                   sum.add(0, std::get<1>(back({false, true, false})));
                                 });
  const double positions = static_cast<double>(gradient.numel()) / static_cast<double>(shape.out);
  std::cout << std::setw(3) << n << " samples  " << std::setw(4) << shape.in << " -> " << std::setw(4)
            << shape.out << "  " << shape.side << "x" << shape.side << "  kernel " << shape.kernel
            << "   channels/positions " << std::setw(6) << static_cast<double>(shape.out) / positions
            << "   forward " << forward << "   input gradient " << input << "   weight gradient " << by_weight
            << '\n';
}

}  // namespace

int main() {
  pp::profile::prepare_process();
  at::set_num_threads(1);
  const c10::AutoGradMode no_grad(false);
  std::cout << std::fixed << std::setprecision(2)
            << "CPU time of the product by LibTorch's, medians of 9 pairs\n";
  for (const std::int64_t samples : {1, 4, 8, 32}) {
    for (const Shape& shape : kShapes) compare(shape, samples);
  }
}
