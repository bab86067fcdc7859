// Shapes, parameters and FLOPs of what decoders add, computed by hand. A multiply-add counts 2.
#include <string>

#include "tests/libprofile/core/ops/op_results.h"
#include "tests/support/doctest.h"

namespace decoder_test {

using namespace pp;
using namespace pp::test;

namespace {

Attribute word(const char* text) { return std::string(text); }

Attributes heads(std::int64_t queries, std::int64_t groups) {
  return {{"num_heads", queries}, {"num_key_value_heads", groups}};
}

Attributes with(Attributes attributes, std::string name, Attribute value) {
  attributes.emplace(std::move(name), std::move(value));
  return attributes;
}

}  // namespace

TEST_SUITE("libprofile/core/ops/decoder") {
  TEST_CASE("grouped_query_attention has fewer heads of keys and values than of queries") {
    const std::vector<TensorType> inputs{real({4, 12}), real({4, 6}), real({4, 6})};
    const OpResult attention = infer("grouped_query_attention", heads(4, 2), inputs);
    CHECK((out(attention) == Shape{4, 12}));
    CHECK(attention.parameters.empty());
    // 4 heads, 4*4 pairs of positions, heads 3 wide: 2*3 for a score, 2*3 for the sum, 5 for the softmax.
    CHECK(attention.forward_flops == Flops(64 * 17));
    // In a window of 2 a position sees 2.
    CHECK(
        infer("grouped_query_attention", with(heads(4, 2), "sliding_window", whole(2)), inputs).forward_flops ==
        Flops(32 * 17));
    CHECK(infer("grouped_query_attention", with(heads(4, 2), "soft_cap", 5.0), inputs).forward_flops ==
          Flops(64 * 20));
    // 4 positions of 4 + 2 heads, 2 of their elements: 3 each.
    CHECK(infer("grouped_query_attention", with(heads(4, 2), "rotary_dim", whole(2)), inputs).forward_flops ==
          Flops(64 * 17 + 144));
    const OpResult normed = infer("grouped_query_attention", with(heads(4, 2), "norms", true), inputs);
    CHECK((normed.parameters == Specs{{"q_norm.weight", {3}}, {"k_norm.weight", {3}}}));
    CHECK(normed.forward_flops == Flops(64 * 17 + 4 * 4 * 6 * 3));
  }

  TEST_CASE(
      "a causal kernel computes half of all pairs of positions, of a window the more the narrower it is") {
    const std::vector<TensorType> inputs{real({8, 12}), real({8, 6}), real({8, 6})};
    const auto computed = [&](const Attributes& attributes) {
      const OpRow& row = *find_op("grouped_query_attention");
      return row.work.inside(complete_attributes(row, attributes, ""), inputs).computed;
    };
    CHECK(computed(heads(4, 2)) == 0.5);
    // Of 8 positions and 8 w counted pairs, 8 w - w^2 / 2: for 2 are 14 of 16, for 4 24 of 32.
    CHECK(computed(with(heads(4, 2), "sliding_window", whole(2))) == 0.875);
    CHECK(computed(with(heads(4, 2), "sliding_window", whole(4))) == 0.75);
    // A window of all positions, or more, hides nothing that a causal mask does not.
    CHECK(computed(with(heads(4, 2), "sliding_window", whole(8))) == 0.5);
    CHECK(computed(with(heads(4, 2), "sliding_window", whole(4096))) == 0.5);
    CHECK(computed(with(heads(4, 2), "causal", false)) == 1);
  }

  TEST_CASE("its values may be narrower, and all may come in one tensor") {
    CHECK((out(infer("grouped_query_attention", heads(4, 2), {real({4, 12}), real({4, 6}), real({4, 2})})) ==
           Shape{4, 4}));
    CHECK((out(infer("grouped_query_attention", heads(4, 2), {real({4, 24})})) == Shape{4, 12}));
    CHECK((out(infer("grouped_query_attention", with(heads(2, 2), "packing", word("heads")),
                     {real({4, 12})})) == Shape{4, 4}));
  }

  TEST_CASE("what does not fit is refused with what would") {
    const std::vector<TensorType> inputs{real({4, 12}), real({4, 6}), real({4, 6})};
    CHECK(refused("grouped_query_attention", heads(4, 3), inputs) ==
          "[data] num_key_value_heads 3 must divide num_heads, 4");
    CHECK(refused("grouped_query_attention", heads(5, 5), inputs) ==
          "[data] num_heads 5 must divide the width of input 0, 12");
    CHECK(refused("grouped_query_attention", heads(4, 4), inputs) ==
          "[data] input 1 is float32 [4, 6], but needs keys, [4, 12], for these queries");
    CHECK(refused("grouped_query_attention", heads(4, 2), {inputs[0], inputs[1]}) ==
          "[data] has two inputs; give queries, keys and values, or one tensor of all three");
    CHECK(refused("grouped_query_attention", with(heads(4, 2), "packing", word("heads")), {real({4, 24})}) ==
          "[data] packing \"heads\" needs as many num_key_value_heads as num_heads");
    CHECK(refused("grouped_query_attention", with(heads(4, 2), "rotary_dim", whole(3)), inputs) ==
          "[data] rotary_dim 3 must be even and at most the width of a head, 3");
    CHECK(refused("grouped_query_attention", with(heads(4, 2), "rotary_scaling", word("yarn")), inputs) ==
          "[data] rotary_scaling \"yarn\" needs rotary_original_length, the positions it was trained with");
  }

  TEST_CASE("gated_activation multiplies its second input, or the second half of its only one") {
    const OpResult two = infer("gated_activation", {}, {real({3, 4}), real({3, 4})});
    CHECK((out(two) == Shape{3, 4}));
    CHECK(two.forward_flops == Flops(12 * 3));  // silu 2, a product
    const OpResult one = infer("gated_activation", {{"activation", word("gelu_tanh")}}, {real({3, 8})});
    CHECK((out(one) == Shape{3, 4}));
    CHECK(one.forward_flops == Flops(12 * 10));
    CHECK(refused("gated_activation", {}, {real({3, 7})}) ==
          "[data] input 0 is float32 [3, 7], but needs an even width, the gate and what it is for");
    CHECK(refused("gated_activation", {}, {real({3, 4}), real({3, 5})}) ==
          "[data] input 1 is float32 [3, 5], but needs the type and shape of input 0, [3, 4]");
  }

  TEST_CASE("an attribute of several words takes those, and is written where it is not the default") {
    const OpRow& row = *find_op("gated_activation");
    CHECK(text(complete_attributes(row, {}, "/a"), "activation") == "silu");
    CHECK(test::error_text([&] {
            return complete_attributes(row, {{"activation", word("tanh")}}, "/a");
          }) ==
          "[data] /a/activation: must be one of \"silu\", \"gelu\", \"gelu_tanh\", \"relu\", not \"tanh\"");
  }

  TEST_CASE("position_embedding may be a part of a longer table") {
    const OpResult positions =
        infer("position_embedding", {{"num_embeddings", whole(10)}, {"offset", whole(2)}}, {real({8, 4})});
    CHECK((positions.parameters == Specs{{"weight", {10, 4}}}));
    CHECK(refused("position_embedding", {{"num_embeddings", whole(9)}, {"offset", whole(2)}}, {real({8, 4})}) ==
          "[data] num_embeddings 9 must be at least positions + offset, 10; use fewer positions");
    CHECK((infer("position_embedding", {{"offset", whole(2)}}, {real({8, 4})}).parameters ==
           Specs{{"weight", {10, 4}}}));
  }
}

}  // namespace decoder_test
