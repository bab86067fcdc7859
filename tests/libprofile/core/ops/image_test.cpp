// Shapes, parameters and FLOPs of the ops on images, computed by hand. A multiply-add counts 2.
#include "tests/libprofile/core/ops/op_results.h"
#include "tests/support/doctest.h"

namespace image_test {

using namespace pp;
using namespace pp::test;

TEST_SUITE("libprofile/core/ops/image") {
  TEST_CASE("conv2d: the published formula, groups and dilation") {
    const OpResult lenet =
        infer("conv2d", {{"out_channels", whole(6)}, {"kernel_size", whole(5)}, {"padding", whole(2)}},
              {real({1, 28, 28})});
    CHECK((out(lenet) == Shape{6, 28, 28}));  // 28 + 2*2 - 5 + 1
    CHECK((lenet.parameters == Specs{{"weight", {6, 1, 5, 5}}, {"bias", {6}}}));
    CHECK(lenet.forward_flops == Flops(239904));  // 6*28*28 * (2*25 + 1)
    const OpResult strided = infer("conv2d",
                                   {{"out_channels", whole(8)},
                                    {"kernel_size", whole(3)},
                                    {"stride", whole(2)},
                                    {"padding", whole(1)},
                                    {"groups", whole(4)},
                                    {"bias", false}},
                                   {real({4, 8, 7})});
    CHECK((out(strided) == Shape{8, 4, 4}));  // (8+2-3)/2+1 = 4 (floor of 3.5, plus 1); (7+2-3)/2+1 = 4
    CHECK((strided.parameters == Specs{{"weight", {8, 1, 3, 3}}}));  // 4 channels in 4 groups
    CHECK(strided.forward_flops == Flops(2304));                     // 8*4*4 * 2*1*9
    const OpResult dilated =
        infer("conv2d", {{"out_channels", whole(1)}, {"kernel_size", whole(3)}, {"dilation", whole(2)}},
              {real({1, 9, 5})});
    CHECK((out(dilated) == Shape{1, 5, 1}));  // the kernel reaches over 2*2+1 = 5
  }

  TEST_CASE("conv2d refuses what does not fit") {
    CHECK(refused("conv2d", {{"out_channels", whole(6)}, {"kernel_size", whole(5)}}, {real({1, 4, 4})}) ==
          "[data] kernel_size 5 reaches over 5 pixels, but the padded input has 4; use a smaller kernel, more "
          "padding or a "
          "larger image");
    CHECK(refused("conv2d", {{"out_channels", whole(6)}, {"kernel_size", whole(1)}, {"groups", whole(4)}},
                  {real({8, 4, 4})}) ==
          "[data] groups 4 must divide the input's channels, 8, and out_channels, 6");
    CHECK(refused("conv2d", {{"out_channels", whole(6)}, {"kernel_size", whole(1)}}, {real({784})}) ==
          "[data] input 0 is float32 [784], but needs three dimensions, [channels, height, width]");
  }

  TEST_CASE("batch_norm2d has weights and running statistics per channel") {
    const OpResult norm = infer("batch_norm2d", {}, {real({3, 4, 5})});
    CHECK((out(norm) == Shape{3, 4, 5}));
    CHECK((norm.parameters == Specs{{"weight", {3}}, {"bias", {3}}}));
    CHECK((norm.buffers == Specs{{"running_mean", {3}}, {"running_var", {3}}}));
    CHECK(norm.forward_flops == Flops(480));  // 8 * 60
  }

  TEST_CASE("pools: one operation per element of each window") {
    const OpResult whole_windows = infer("max_pool2d", {{"kernel_size", whole(2)}}, {real({6, 28, 9})});
    CHECK((out(whole_windows) == Shape{6, 14, 4}));     // (9-2)/2+1 = 4: the last column is left out
    CHECK(whole_windows.forward_flops == Flops(1344));  // 6*14*4 * 4
    const OpResult overlapping =
        infer("avg_pool2d", {{"kernel_size", whole(3)}, {"stride", whole(2)}, {"padding", whole(1)}},
              {real({1, 112, 112})});
    CHECK((out(overlapping) == Shape{1, 56, 56}));     // (112+2-3)/2+1 = 56, as in ResNet's stem
    CHECK(overlapping.forward_flops == Flops(28224));  // 56*56 * 9
    CHECK(refused("max_pool2d", {{"kernel_size", whole(3)}, {"padding", whole(2)}}, {real({1, 8, 8})}) ==
          "[data] padding 2 is more than half of kernel_size 3; use at most 1");
  }

  TEST_CASE("adaptive_avg_pool2d gives the size that is asked for") {
    const OpResult pool = infer("adaptive_avg_pool2d", {{"output_size", whole(2)}}, {real({3, 7, 5})});
    CHECK((out(pool) == Shape{3, 2, 2}));
    CHECK(pool.forward_flops == Flops(117));  // 3*7*5 additions, 3*2*2 divisions
  }

  TEST_CASE("conv2d: kernels that are not square") {
    const OpResult row = infer("conv2d",
                               {{"out_channels", whole(4)},
                                {"kernel_size", whole(1)},
                                {"kernel_width", whole(7)},
                                {"padding", whole(0)},
                                {"padding_width", whole(3)},
                                {"bias", false}},
                               {real({2, 5, 8})});
    CHECK((out(row) == Shape{4, 5, 8}));  // 8+6-7+1 = 8
    CHECK((row.parameters == Specs{{"weight", {4, 2, 1, 7}}}));
    CHECK(row.forward_flops == Flops(4480));  // 4*5*8 * 2*2*7
  }

  TEST_CASE("in ceil mode a pool's last window may hang over, if it starts inside") {
    const Attributes attributes{{"kernel_size", whole(3)}, {"stride", whole(2)}, {"ceil_mode", true}};
    CHECK((out(infer("max_pool2d", attributes, {real({1, 54, 55})})) == Shape{1, 27, 27}));  // 25.5 + 1, 26 + 1
    // A window from 2 on has no pixel of a side of 2: (2-1)/2+1 = 1, and the next would start at 2.
    const Attributes single{{"kernel_size", whole(1)}, {"stride", whole(2)}, {"ceil_mode", true}};
    CHECK((out(infer("avg_pool2d", single, {real({1, 2, 3})})) == Shape{1, 1, 2}));
  }

  TEST_CASE("norms without parameters and dropout of channels keep the shape") {
    const OpResult instance = infer("instance_norm2d", {}, {real({2, 3, 4})});
    CHECK((out(instance) == Shape{2, 3, 4}));
    CHECK(instance.parameters.empty());
    CHECK(instance.forward_flops == Flops(144));  // 6 * 24
    const OpResult response = infer("local_response_norm", {{"size", whole(5)}}, {real({2, 3, 4})});
    CHECK((out(response) == Shape{2, 3, 4}));
    CHECK(response.forward_flops == Flops(240));  // (5 + 5) * 24
    CHECK(infer("dropout2d", {}, {real({2, 3, 4})}).forward_flops == Flops(24));
    CHECK(refused("dropout2d", {}, {real({3, 4})}) ==
          "[data] input 0 is float32 [3, 4], but needs three dimensions, [channels, height, width]");
  }

  TEST_CASE("upsampling multiplies height and width") {
    const OpResult nearest = infer("upsample_nearest2d", {}, {real({2, 3, 4})});
    CHECK((out(nearest) == Shape{2, 6, 8}));
    CHECK(nearest.forward_flops == Flops(0));
    const OpResult bilinear = infer("upsample_bilinear2d", {{"scale_factor", whole(3)}}, {real({1, 2, 2})});
    CHECK((out(bilinear) == Shape{1, 6, 6}));
    CHECK(bilinear.forward_flops == Flops(288));  // 36 * 4 multiply-adds
  }
}

}  // namespace image_test
