// Shapes, parameters and FLOPs of every op, computed by hand. A multiply-add counts 2, a bias 1 per output.
#include <vector>

#include "libprofile/core/op_table.h"
#include "tests/libprofile/core/error_text.h"
#include "tests/support/doctest.h"

using namespace pp;

namespace {

Attribute whole(std::int64_t value) { return value; }
TensorType real(Shape shape) { return {std::move(shape), DType::float32}; }
TensorType index_type(Shape shape) { return {std::move(shape), DType::int64}; }

OpResult infer(std::string_view name, const Attributes& given, const std::vector<TensorType>& inputs) {
  const OpRow& row = find_op(name) != nullptr ? *find_op(name) : *find_loss(name);
  return row.infer(complete_attributes(row, given, ""), inputs);
}
std::string refused(std::string_view name, const Attributes& given, const std::vector<TensorType>& inputs) {
  return test::error_text([&] { return infer(name, given, inputs); });
}
Shape out(const OpResult& result) { return result.outputs.at(0).shape; }

using Specs = std::vector<ParameterSpec>;

}  // namespace

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

  TEST_CASE("pointwise ops keep the shape") {
    // 6 elements; relu and tanh 1, dropout 2, gelu 5 operations each.
    const std::vector<std::pair<std::string_view, double>> costs{
        {"relu", 6}, {"tanh", 6}, {"dropout", 12}, {"gelu", 30}};
    for (const auto& [name, flops] : costs) {
      const std::string op(name);
      CAPTURE(op);
      const OpResult result = infer(op, {}, {real({2, 3})});
      CHECK((out(result) == Shape{2, 3}));
      CHECK(result.parameters.empty());
      CHECK(result.forward_flops == Flops(flops));
    }
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
}
