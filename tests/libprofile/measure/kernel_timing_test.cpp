// Which of two timed kernels is taken.
#include "libprofile/measure/kernel_timing.h"

#include "tests/libprofile/measure/fakes.h"
#include "tests/support/torch_test.h"

namespace pp::profile {

TEST_SUITE("libprofile/measure/kernel_timing") {
  TEST_CASE("the other kernel must be 3 % faster than the usual one") {
    const auto taken = [](const KernelKey& key, double first, double second) {
      return faster_kernel({key, {}, std::array{Seconds(first), Seconds(second)}});
    };
    const KernelKey product{KernelTask::product, DType::float32, ProductLayout::nn, {8, 8, 8}};
    CHECK(taken(product, 1.0, 0.96) == Kernel::onednn);
    CHECK(taken(product, 1.0, 0.98) == Kernel::mkl);
    CHECK(taken(product, 0.5, 1.0) == Kernel::mkl);
    // 2 x 4 x 4 = 32 positions: 512 output channels are 16 times as many, so that a product is usual.
    KernelKey convolution{KernelTask::convolution, DType::float32, {}, {2, 8, 4, 4, 512, 1, 1, 0, 0, 1, 1}};
    CHECK(taken(convolution, 0.96, 1.0) == Kernel::convolution);
    CHECK(taken(convolution, 0.98, 1.0) == Kernel::product);
    convolution.sizes[4] = 511;
    CHECK(taken(convolution, 1.0, 0.98) == Kernel::convolution);
    CHECK(taken(convolution, 1.0, 0.96) == Kernel::product);
  }

  TEST_CASE("products inside convolutions are timed too; what is known stays; equal times change nothing") {
    // 1 x 4 x 4 = 16 positions of 8 channels by 32 kernels of 1: [32, 8] by [8, 16].
    const KernelKey convolution{
        KernelTask::convolution, DType::float32, {}, {1, 8, 4, 4, 32, 1, 1, 0, 0, 1, 1}};
    const KernelKey inner{KernelTask::product, DType::float32, ProductLayout::nn, {32, 8, 16}};
    const test::CountingClock clock;
    const std::vector<KernelChoice> found = time_kernels({convolution}, {}, clock);
    REQUIRE(found.size() == 2);
    CHECK(found[0].key == inner);
    CHECK(found[0].kernel == Kernel::mkl);
    CHECK(found[1].key == convolution);
    CHECK(found[1].kernel == Kernel::convolution);
    // One reading before the calls, one behind them.
    CHECK((*found[0].measured)[0].count() == doctest::Approx(1e-3));
    const KernelChoice known{inner, Kernel::onednn, {}};
    CHECK(time_kernels({convolution}, {known}, clock)[0] == known);
  }
}

}  // namespace pp::profile
