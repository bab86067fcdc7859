// Shapes, parameters and FLOPs of attention, computed by hand. A multiply-add counts 2.
#include "tests/libprofile/core/ops/op_results.h"
#include "tests/support/doctest.h"

namespace attention_test {

using namespace pp;
using namespace pp::test;

TEST_SUITE("libprofile/core/ops/attention") {
  TEST_CASE("multi_head_attention has PyTorch's parameters in PyTorch's order") {
    const OpResult attention = infer("multi_head_attention", {{"num_heads", whole(2)}}, {real({3, 4})});
    CHECK((out(attention) == Shape{3, 4}));
    CHECK((attention.parameters == Specs{{"in_proj_weight", {12, 4}},
                                         {"in_proj_bias", {12}},
                                         {"out_proj.weight", {4, 4}},
                                         {"out_proj.bias", {4}}}));
    // Projections: 3 positions * 4 matrices of 4x4 * 2 = 384, biases 3*16 = 48. Scores and weighted sum: 2 *
    // 2*3*3*4 = 144. Softmax: 2 heads * 3*3 * 5 = 90.
    CHECK(attention.forward_flops == Flops(384 + 48 + 144 + 90));
    const OpResult plain =
        infer("multi_head_attention", {{"num_heads", whole(1)}, {"bias", false}}, {real({3, 4})});
    CHECK((plain.parameters == Specs{{"in_proj_weight", {12, 4}}, {"out_proj.weight", {4, 4}}}));
    CHECK(plain.forward_flops == Flops(384 + 144 + 45));
    CHECK(refused("multi_head_attention", {{"num_heads", whole(3)}}, {real({3, 4})}) ==
          "[data] num_heads 3 must divide the width, 4");
  }

  TEST_CASE("multi_head_attention takes a bias by relative position as its second input") {
    const Attributes heads{{"num_heads", whole(2)}};
    const double alone = infer("multi_head_attention", heads, {real({3, 4})}).forward_flops.value;
    const OpResult biased = infer("multi_head_attention", heads, {real({3, 4}), real({8, 2})});
    CHECK((out(biased) == Shape{3, 4}));
    CHECK(biased.forward_flops == Flops(alone + 18));  // one more addition for 2 * 3*3 scores
    CHECK(refused("multi_head_attention", heads, {real({3, 4}), real({8, 3})}) ==
          "[data] input 1 is float32 [8, 3], but needs [num_buckets, 2], num_buckets a multiple of 4; use "
          "relative_position_bias with the same num_heads");
    CHECK(refused("multi_head_attention", {{"num_heads", whole(2)}, {"max_distance", whole(4)}},
                  {real({3, 4}), real({8, 2})}) ==
          "[data] max_distance 4 must be more than half of num_buckets, 8");
  }

  TEST_CASE("cross_attention goes from the first input to the second") {
    const OpResult attention =
        infer("cross_attention", {{"num_heads", whole(2)}}, {real({3, 4}), real({5, 4})});
    CHECK((out(attention) == Shape{3, 4}));
    CHECK((attention.parameters ==
           infer("multi_head_attention", {{"num_heads", whole(2)}}, {real({3, 4})}).parameters));
    // Two 4x4 projections of 3 and of 5 positions: 16 * (32 + 4 for the bias). Scores and weighted sum 2 *
    // 2*15*4. Softmax: 2 heads * 15 * 5.
    CHECK(attention.forward_flops == Flops(576 + 240 + 150));
    CHECK(refused("cross_attention", {{"num_heads", whole(2)}}, {real({3, 4}), real({5, 6})}) ==
          "[data] input 1 is float32 [5, 6], but needs [positions, 4], the width of input 0");
  }

  TEST_CASE("additive_attention projects queries and keys to hidden units") {
    const OpResult attention =
        infer("additive_attention", {{"num_units", whole(7)}}, {real({3, 4}), real({5, 6})});
    CHECK((out(attention) == Shape{3, 6}));
    CHECK((attention.parameters == Specs{{"linear_q.weight", {7, 4}},
                                         {"linear_k.weight", {7, 6}},
                                         {"linear_att", {7}},
                                         {"normalize_scalar", {1}},
                                         {"normalize_bias", {7}}}));
    // Projections 2*7 (3*4 + 5*6) = 588; for each of 15 pairs 7 units * 5, softmax 5, weighted sum 2*6.
    CHECK(attention.forward_flops == Flops(588 + 15 * (35 + 5 + 12)));
  }

  TEST_CASE("relative_position_bias hands on its table") {
    const OpResult table = infer("relative_position_bias", {{"num_heads", whole(2)}, {"num_buckets", whole(8)}},
                                 {index_type({5})});
    CHECK((table.outputs == std::vector<TensorType>{real({8, 2})}));
    CHECK((table.parameters == Specs{{"weight", {8, 2}}}));
    CHECK(refused("relative_position_bias", {{"num_heads", whole(2)}, {"num_buckets", whole(6)}},
                  {index_type({5})}) == "[data] num_buckets 6 must be a multiple of 4");
    CHECK(refused("relative_position_bias", {{"num_heads", whole(2)}}, {real({5})}) ==
          "[data] input 0 is float32 [5], but needs int64, such as the model's tokens");
  }
}

}  // namespace attention_test
