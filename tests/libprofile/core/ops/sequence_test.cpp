// Shapes, parameters and FLOPs of the ops on sequences, computed by hand. A multiply-add counts 2.
#include "tests/libprofile/core/ops/op_results.h"
#include "tests/support/doctest.h"

namespace sequence_test {

using namespace pp;
using namespace pp::test;

TEST_SUITE("libprofile/core/ops/sequence") {
  TEST_CASE("embedding turns indices into rows") {
    const OpResult rows =
        infer("embedding", {{"num_embeddings", whole(100)}, {"embedding_dim", whole(8)}}, {index_type({16})});
    CHECK((rows.outputs == std::vector<TensorType>{real({16, 8})}));
    CHECK((rows.parameters == Specs{{"weight", {100, 8}}}));
    CHECK(rows.forward_flops == Flops(0));
    CHECK(refused("embedding", {{"num_embeddings", whole(9)}, {"embedding_dim", whole(8)}}, {real({16})}) ==
          "[data] input 0 is float32 [16], but needs int64 indices");
  }

  TEST_CASE("position_embedding has a row per position") {
    const OpResult sum = infer("position_embedding", {}, {real({16, 8})});
    CHECK((out(sum) == Shape{16, 8}));
    CHECK((sum.parameters == Specs{{"weight", {16, 8}}}));
    CHECK(sum.forward_flops == Flops(128));
    CHECK(refused("position_embedding", {}, {real({16})}) ==
          "[data] input 0 is float32 [16], but needs two dimensions, [positions, width]");
  }

  TEST_CASE("layer_norm normalises the last dimension") {
    const OpResult norm = infer("layer_norm", {}, {real({4, 6})});
    CHECK((norm.parameters == Specs{{"weight", {6}}, {"bias", {6}}}));
    CHECK(norm.buffers.empty());
    CHECK(norm.forward_flops == Flops(192));  // 8 * 24
  }

  TEST_CASE("softmax costs five operations per element") {
    CHECK(infer("softmax", {}, {real({4, 6})}).forward_flops == Flops(120));
  }

  TEST_CASE("rms_norm has no bias") {
    const OpResult norm = infer("rms_norm", {}, {real({4, 6})});
    CHECK((norm.parameters == Specs{{"weight", {6}}}));
    CHECK(norm.forward_flops == Flops(96));  // 4 * 24
  }

  TEST_CASE("position_encoding needs an even width") {
    CHECK(infer("position_encoding", {}, {real({3, 4})}).forward_flops == Flops(12));
    CHECK(refused("position_encoding", {}, {real({3, 5})}) ==
          "[data] input 0 is float32 [3, 5], but needs an even width, a sine and a cosine per frequency");
  }

  TEST_CASE("locked_dropout works on sequences") {
    CHECK(infer("locked_dropout", {}, {real({3, 4})}).forward_flops == Flops(12));
    CHECK(refused("locked_dropout", {}, {real({4})}) ==
          "[data] input 0 is float32 [4], but needs two dimensions, [positions, width]");
  }

  TEST_CASE("lstm has PyTorch's parameters in PyTorch's order") {
    const OpResult one = infer("lstm", {{"hidden_size", whole(3)}}, {real({5, 2})});
    CHECK((out(one) == Shape{5, 3}));
    CHECK((one.parameters == Specs{{"weight_ih_l0", {12, 2}},
                                   {"weight_hh_l0", {12, 3}},
                                   {"bias_ih_l0", {12}},
                                   {"bias_hh_l0", {12}}}));
    // Per position: gates 12 * 5 multiply-adds and 24 biases, then 4 + 3 + 2 operations for each of 3 units.
    CHECK(one.forward_flops == Flops(5 * (120 + 24 + 27)));
    const OpResult two = infer(
        "lstm", {{"hidden_size", whole(3)}, {"num_layers", whole(2)}, {"bidirectional", true}, {"bias", false}},
        {real({5, 2})});
    CHECK((out(two) == Shape{5, 6}));
    CHECK((two.parameters == Specs{{"weight_ih_l0", {12, 2}},
                                   {"weight_hh_l0", {12, 3}},
                                   {"weight_ih_l0_reverse", {12, 2}},
                                   {"weight_hh_l0_reverse", {12, 3}},
                                   {"weight_ih_l1", {12, 6}},
                                   {"weight_hh_l1", {12, 3}},
                                   {"weight_ih_l1_reverse", {12, 6}},
                                   {"weight_hh_l1_reverse", {12, 3}}}));
    // Both directions: 120 + 27 in the first layer; in the second 12 * 9 multiply-adds, 216 + 27.
    CHECK(two.forward_flops == Flops(5 * 2 * (147 + 243)));
  }
}

}  // namespace sequence_test
