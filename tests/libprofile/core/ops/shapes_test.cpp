// Shapes, parameters and FLOPs of every op, computed by hand. A multiply-add counts 2, a bias 1 per output.
#include <string>
#include <utility>

#include "tests/libprofile/core/ops/op_results.h"
#include "tests/support/doctest.h"

namespace shapes_test {

using namespace pp;
using namespace pp::test;

TEST_SUITE("libprofile/core/ops/shapes") {
  TEST_CASE("linear works on the last dimension") {
    const OpResult flat = infer("linear", {{"out_features", whole(3)}}, {real({5})});
    CHECK(out(flat) == Shape{3});
    CHECK((flat.parameters == Specs{{"weight", {3, 5}}, {"bias", {3}}}));
    CHECK(flat.forward_flops == Flops(33));  // 3 (2*5 + 1)
    const OpResult sequence = infer("linear", {{"out_features", whole(3)}, {"bias", false}}, {real({2, 4, 5})});
    CHECK((out(sequence) == Shape{2, 4, 3}));
    CHECK((sequence.parameters == Specs{{"weight", {3, 5}}}));
    CHECK(sequence.forward_flops == Flops(240));  // 2*4*3 * 2*5
    CHECK(refused("linear", {{"out_features", whole(3)}}, {real({})}) ==
          "[data] input 0 is float32 [], but needs at least one dimension, [..., features]");
    CHECK(refused("linear", {{"out_features", whole(3)}}, {index_type({4})}) ==
          "[data] input 0 is int64 [4], but needs a floating type");
  }

  TEST_CASE("pointwise ops keep the shape") {
    // 6 elements; one operation each for relu, tanh, sigmoid, two for the next, five for gelu.
    const std::vector<std::pair<std::string_view, double>> costs{
        {"relu", 6},   {"tanh", 6},  {"sigmoid", 6},     {"relu6", 12},  {"silu", 12},
        {"scale", 12}, {"gelu", 30}, {"leaky_relu", 12}, {"dropout", 12}};
    for (const auto& [name, flops] : costs) {
      const std::string op(name);
      CAPTURE(op);
      const OpResult result = infer(op, {}, {real({2, 3})});
      CHECK((out(result) == Shape{2, 3}));
      CHECK(result.parameters.empty());
      CHECK(result.forward_flops == Flops(flops));
    }
  }

  TEST_CASE("gelu by tanh costs nine operations per element") {
    CHECK(infer("gelu", {{"tanh", true}}, {real({2, 3})}).forward_flops == Flops(54));
  }

  TEST_CASE("bias is a vector for the last dimension") {
    const OpResult sum = infer("bias", {}, {real({4, 3})});
    CHECK((out(sum) == Shape{4, 3}));
    CHECK((sum.parameters == Specs{{"bias", {3}}}));
    CHECK(sum.forward_flops == Flops(12));
    CHECK(refused("bias", {}, {real({})}) ==
          "[data] input 0 is float32 [], but needs at least one dimension, [..., features]");
  }

  TEST_CASE("multiply takes two or more tensors of one shape") {
    const OpResult product = infer("multiply", {}, {real({2, 3}), real({2, 3})});
    CHECK((out(product) == Shape{2, 3}));
    CHECK(product.forward_flops == Flops(6));
    CHECK(refused("multiply", {}, {real({2, 3}), real({2})}) ==
          "[data] input 1 is float32 [2], but needs the type and shape of input 0, [2, 3], or sizes of 1");
  }

  TEST_CASE("pad lengthens or shortens one dimension") {
    CHECK((out(infer("pad", {{"before", whole(1)}, {"after", whole(2)}}, {real({3, 4})})) == Shape{6, 4}));
    CHECK((out(infer("pad", {{"dim", whole(1)}, {"before", whole(-3)}, {"after", whole(1)}}, {real({3, 4})})) ==
           Shape{3, 2}));
    CHECK(refused("pad", {{"before", whole(-2)}, {"after", whole(-1)}}, {real({3})}) ==
          "[data] before -2 and after -1 leave nothing of dimension 0, which has 3 elements; cut off less");
    CHECK(refused("pad", {{"before", whole(-3)}, {"after", whole(5)}}, {real({3})}) ==
          "[data] before -3 and after 5 leave nothing of dimension 0, which has 3 elements; cut off less");
  }

  TEST_CASE("mean takes a dimension away") {
    const OpResult mean = infer("mean", {}, {real({5, 4})});
    CHECK((out(mean) == Shape{4}));
    CHECK(mean.forward_flops == Flops(24));  // 20 additions, 4 divisions
    CHECK((out(infer("mean", {{"dim", whole(1)}}, {real({5, 4})})) == Shape{5}));
  }

  TEST_CASE("flatten makes one dimension, of a scalar too") {
    CHECK((out(infer("flatten", {}, {real({2, 3, 4})})) == Shape{24}));
    CHECK((out(infer("flatten", {}, {real({})})) == Shape{1}));
  }

  TEST_CASE("add takes two or more tensors of one shape") {
    const OpResult sum = infer("add", {}, {real({2, 3}), real({2, 3}), real({2, 3})});
    CHECK((out(sum) == Shape{2, 3}));
    CHECK(sum.forward_flops == Flops(12));  // 2 additions of 6 elements
    CHECK(refused("add", {}, {real({2, 3}), real({3, 2})}) ==
          "[data] input 1 is float32 [3, 2], but needs the type and shape of input 0, [2, 3], or sizes of 1");
  }

  TEST_CASE("concat counts its dimension without the batch") {
    CHECK((out(infer("concat", {}, {real({2, 3}), real({5, 3})})) == Shape{7, 3}));
    CHECK(
        (out(infer("concat", {{"dim", whole(1)}}, {real({2, 3}), real({2, 1}), real({2, 4})})) == Shape{2, 8}));
    CHECK(refused("concat", {}, {real({2, 3}), real({5, 4})}) ==
          "[data] input 1 is float32 [5, 4], but needs the type and shape of input 0, [2, 3], except in "
          "dimension 0");
    CHECK(
        refused("concat", {{"dim", whole(2)}}, {real({2, 3}), real({2, 3})}) ==
        "[data] input 0 is float32 [2, 3], but needs a dimension 2 (attribute dim, counted without the batch)");
  }

  TEST_CASE("opaque has bytes and nothing else") {
    const OpResult result = infer("opaque", {{"output_bytes", whole(1000)}}, {});
    CHECK(bytes_of(result.outputs.at(0)) == Bytes(1000));
    CHECK(result.forward_flops == Flops(0));
  }

  TEST_CASE("cross_entropy compares classes with labels, per sample, per position or per pixel") {
    const OpResult sample = infer("cross_entropy", {}, {real({10}), index_type({})});
    CHECK(out(sample).empty());
    CHECK(sample.forward_flops == Flops(50));
    CHECK(infer("cross_entropy", {}, {real({6, 10}), index_type({6})}).forward_flops == Flops(300));
    CHECK(refused("cross_entropy", {}, {real({10}), index_type({10})}) ==
          "[data] input 1 is int64 [10], but needs int64 labels [] for logits [10]");
    CHECK(refused("cross_entropy", {}, {real({6, 10}), real({6})}) ==
          "[data] input 1 is float32 [6], but needs int64 labels [6] for logits [6, 10]");
    CHECK(infer("cross_entropy", {}, {real({4, 2, 3}), index_type({2, 3})}).forward_flops == Flops(120));
    CHECK(refused("cross_entropy", {}, {real({4, 2, 3}), index_type({4, 2})}) ==
          "[data] input 1 is int64 [4, 2], but needs int64 labels [2, 3] for logits [4, 2, 3]");
    CHECK(refused("cross_entropy", {}, {real({1, 2, 3, 4}), index_type({2, 3, 4})}) ==
          "[data] input 0 is float32 [1, 2, 3, 4], but needs logits, [classes], [positions, classes] or "
          "[classes, "
          "height, width]");
  }

  TEST_CASE("mse compares equal shapes") {
    CHECK(infer("mse", {}, {real({2, 3}), real({2, 3})}).forward_flops == Flops(18));
    CHECK(refused("mse", {}, {real({2}), real({3})}) ==
          "[data] input 1 is float32 [3], but needs the prediction's shape, [2]");
  }

  TEST_CASE("binary_cross_entropy compares equal shapes") {
    CHECK(infer("binary_cross_entropy", {}, {real({2, 3}), real({2, 3})}).forward_flops == Flops(54));
    CHECK(refused("binary_cross_entropy", {}, {real({2}), index_type({2})}) ==
          "[data] input 1 is int64 [2], but needs a floating type");
  }

  TEST_CASE("text_detection compares six maps") {
    CHECK(infer("text_detection", {}, {real({6, 2, 5}), real({6, 2, 5})}).forward_flops == Flops(330));
    CHECK(refused("text_detection", {}, {real({5, 2, 5}), real({5, 2, 5})}) ==
          "[data] input 0 is float32 [5, 2, 5], but needs [6, height, width]: score, distances to top, right, "
          "bottom, "
          "left, angle");
  }

  TEST_CASE("add and multiply repeat sizes of 1") {
    const OpResult sum = infer("add", {}, {real({3, 1, 2}), real({1, 4, 2}), real({1, 1, 1})});
    CHECK((out(sum) == Shape{3, 4, 2}));
    CHECK(sum.forward_flops == Flops(48));  // two sums of 24
    CHECK((out(infer("multiply", {}, {real({4, 6, 6}), real({4, 1, 1})})) == Shape{4, 6, 6}));
  }

  TEST_CASE("reshape, permute, slice and chunk move elements") {
    using List = std::vector<std::int64_t>;
    CHECK((out(infer("reshape", {{"shape", List{2, -1, 3}}}, {real({4, 6})})) == Shape{2, 4, 3}));
    CHECK((out(infer("reshape", {{"shape", List{24}}}, {index_type({4, 6})})) == Shape{24}));
    CHECK(refused("reshape", {{"shape", List{5, -1}}}, {real({4, 6})}) ==
          "[data] shape [5, -1] does not hold the 24 elements of [4, 6]");
    CHECK(refused("reshape", {{"shape", List{-1, -1}}}, {real({4})}) ==
          "[data] shape [-1, -1] has more than one -1, or a 0");
    CHECK((out(infer("permute", {{"dims", List{2, 0, 1}}}, {real({2, 3, 4})})) == Shape{4, 2, 3}));
    CHECK(refused("permute", {{"dims", List{0, 0, 1}}}, {real({2, 3, 4})}) ==
          "[data] dims [0, 0, 1] must name each dimension of [2, 3, 4] once, from 0");
    CHECK(refused("permute", {{"dims", List{}}}, {real({2})}) ==
          "[data] /dims: must be 1 to 16 integers from 0 to 15, not []");
    // Of 7 the elements 1, 3, 5.
    CHECK((out(infer("slice", {{"dim", whole(1)}, {"start", whole(1)}, {"end", whole(6)}, {"step", whole(2)}},
                     {real({3, 7})})) == Shape{3, 3}));
    CHECK(refused("slice", {{"end", whole(4)}}, {real({3})}) ==
          "[data] end 4 must be above start, 0, and at most the size, 3");
    const OpResult parts = infer("chunk", {{"chunks", whole(3)}, {"dim", whole(1)}}, {real({2, 6})});
    REQUIRE(parts.outputs.size() == 3);
    CHECK((parts.outputs[2].shape == Shape{2, 2}));
    CHECK(refused("chunk", {{"chunks", whole(4)}}, {real({6})}) ==
          "[data] chunks 4 must divide dimension 0, which has 6");
  }

  TEST_CASE("matmul and attention of given queries, keys and values") {
    const OpResult product = infer("matmul", {}, {real({2, 3, 4}), real({2, 4, 5})});
    CHECK((out(product) == Shape{2, 3, 5}));
    CHECK(product.forward_flops == Flops(240));  // 30 outputs of 4 multiply-adds
    CHECK(refused("matmul", {}, {real({3, 4}), real({5, 4})}) ==
          "[data] input 1 is float32 [5, 4], but needs [..., inner, columns] for [3, 4], with its leading "
          "dimensions and type");
    const OpResult mixed =
        infer("scaled_dot_product_attention", {}, {real({2, 3, 4}), real({2, 5, 4}), real({2, 5, 6})});
    CHECK((out(mixed) == Shape{2, 3, 6}));
    CHECK(mixed.forward_flops == Flops(30 * (8 + 12 + 5)));  // 2 * 3 * 5 pairs
    CHECK(refused("scaled_dot_product_attention", {}, {real({3, 4}), real({5, 3}), real({5, 6})}) ==
          "[data] input 1 is float32 [5, 3], but needs keys, [..., positions, width] for queries [3, 4]");
  }

  TEST_CASE("norms of groups, of features and of sequences") {
    const OpResult groups = infer("group_norm", {{"num_groups", whole(2)}}, {real({4, 3})});
    CHECK((groups.parameters == Specs{{"weight", {4}}, {"bias", {4}}}));
    CHECK(groups.forward_flops == Flops(96));
    CHECK(refused("group_norm", {{"num_groups", whole(3)}}, {real({4})}) ==
          "[data] num_groups 3 must divide the channels, 4");
    CHECK(
        (infer("batch_norm1d", {}, {real({4})}).buffers == Specs{{"running_mean", {4}}, {"running_var", {4}}}));
    CHECK(refused("batch_norm1d", {}, {real({4, 2, 2})}).starts_with("[data] input 0 is float32 [4, 2, 2]"));
  }

  TEST_CASE("conv1d and conv_transpose2d") {
    // 8 + 2 - 2 = 8 places, every second one.
    const OpResult line = infer(
        "conv1d",
        {{"out_channels", whole(2)}, {"kernel_size", whole(3)}, {"stride", whole(2)}, {"padding", whole(1)}},
        {real({3, 8})});
    CHECK((out(line) == Shape{2, 4}));
    CHECK((line.parameters == Specs{{"weight", {2, 3, 3}}, {"bias", {2}}}));
    CHECK(line.forward_flops == Flops(8 * 19));  // 9 multiply-adds and a bias
    // (6 - 1) 2 - 2 + 3 + 1 = 12 rows, (5 - 1) 2 - 2 + 3 + 1 = 10 columns
    const OpResult grown = infer("conv_transpose2d",
                                 {{"out_channels", whole(6)},
                                  {"kernel_size", whole(3)},
                                  {"stride", whole(2)},
                                  {"padding", whole(1)},
                                  {"output_padding", whole(1)},
                                  {"groups", whole(2)}},
                                 {real({4, 6, 5})});
    CHECK((out(grown) == Shape{6, 12, 10}));
    CHECK((grown.parameters == Specs{{"weight", {4, 3, 3, 3}}, {"bias", {6}}}));
    CHECK(grown.forward_flops == Flops(120 * 54 + 720));  // 120 inputs reach 3 * 9 outputs each; 720 biases
  }
}

}  // namespace shapes_test
