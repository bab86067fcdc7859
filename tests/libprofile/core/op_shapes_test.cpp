// Shapes, parameters and FLOPs of every op, computed by hand. A multiply-add counts 2, a bias 1 per output.
#include <string>
#include <utility>

#include "tests/libprofile/core/op_results.h"
#include "tests/support/doctest.h"

using namespace pp;
using namespace pp::test;

TEST_SUITE("libprofile/core/op_shapes") {
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
          "[data] input 1 is float32 [2], but needs the type and shape of input 0, [2, 3]");
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
          "[data] input 1 is float32 [3, 2], but needs the type and shape of input 0, [2, 3]");
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

  TEST_CASE("cross_entropy compares classes with labels, per sample or per position") {
    const OpResult sample = infer("cross_entropy", {}, {real({10}), index_type({})});
    CHECK(out(sample).empty());
    CHECK(sample.forward_flops == Flops(50));
    CHECK(infer("cross_entropy", {}, {real({6, 10}), index_type({6})}).forward_flops == Flops(300));
    CHECK(refused("cross_entropy", {}, {real({10}), index_type({10})}) ==
          "[data] input 1 is int64 [10], but needs int64 labels [] for logits [10]");
    CHECK(refused("cross_entropy", {}, {real({6, 10}), real({6})}) ==
          "[data] input 1 is float32 [6], but needs int64 labels [6] for logits [6, 10]");
    CHECK(refused("cross_entropy", {}, {real({1, 2, 3}), index_type({1, 2})}) ==
          "[data] input 0 is float32 [1, 2, 3], but needs logits, [classes] or [positions, classes]");
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
}
