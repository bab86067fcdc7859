// Rows of attention: self, cross, additive, of given queries, keys and values, and the learned bias of
// relative positions.
#include <string>
#include <utility>

#include "libprofile/core/ops/rows.h"

namespace pp::detail {

namespace {

/// in_proj holds the projections of query, key and value, one below the other.
std::vector<ParameterSpec> projections(std::int64_t width, bool bias) {
  std::vector<ParameterSpec> parameters{{"in_proj_weight", {3 * width, width}}};
  if (bias) parameters.push_back({"in_proj_bias", {3 * width}});
  parameters.push_back({"out_proj.weight", {width, width}});
  if (bias) parameters.push_back({"out_proj.bias", {width}});
  return parameters;
}

/// Attention of `query` positions to `key` positions: projections (two of each length), scores and weighted
/// sum, softmax. A causal mask does not lower the count.
double attention_flops(double query, double key, double width, double heads, bool bias) {
  const double project = (2.0 * query + 2.0 * key) * (2.0 * width * width + (bias ? width : 0.0));
  return project + 4.0 * query * key * width + 5.0 * heads * query * key;
}

void require_heads(std::int64_t heads, std::int64_t width) {
  if (width % heads == 0) return;
  throw Error(ErrorKind::data,
              "num_heads " + std::to_string(heads) + " must divide the width, " + std::to_string(width));
}

/// The second input of multi_head_attention, [num_buckets, heads]. Half the buckets (a quarter when positions
/// on both sides are seen) stand for one distance each, the others share the distances up to max_distance.
void require_bias_table(std::span<const TensorType> inputs, std::int64_t heads, std::int64_t max_distance) {
  const Shape& table = inputs[1].shape;
  if (table.size() != 2 || table[1] != heads || table[0] % 4 != 0) {
    refuse_input(1, inputs[1],
                 "[num_buckets, " + std::to_string(heads) + "], num_buckets a multiple of 4; use " +
                     "relative_position_bias with the same num_heads");
  }
  if (max_distance > table[0] / 2) return;
  throw Error(ErrorKind::data, "max_distance " + std::to_string(max_distance) +
                                   " must be more than half of num_buckets, " + std::to_string(table[0]));
}

OpResult infer_multi_head_attention(const Attributes& attributes, std::span<const TensorType> inputs) {
  const std::int64_t length = inputs[0].shape[0], width = inputs[0].shape[1];
  const std::int64_t heads = integer(attributes, "num_heads");
  require_heads(heads, width);
  if (inputs.size() > 1) require_bias_table(inputs, heads, integer(attributes, "max_distance"));
  const bool bias = boolean(attributes, "bias");
  const double added = inputs.size() > 1 ? real(heads) * real(length) * real(length) : 0.0;
  return {{inputs[0]},
          projections(width, bias),
          {},
          Flops(attention_flops(real(length), real(length), real(width), real(heads), bias) + added)};
}

OpResult infer_cross_attention(const Attributes& attributes, std::span<const TensorType> inputs) {
  const std::int64_t length = inputs[0].shape[0], width = inputs[0].shape[1];
  if (inputs[1].shape.size() != 2 || inputs[1].shape[1] != width)
    refuse_input(1, inputs[1], "[positions, " + std::to_string(width) + "], the width of input 0");
  const std::int64_t heads = integer(attributes, "num_heads");
  require_heads(heads, width);
  const bool bias = boolean(attributes, "bias");
  return {{inputs[0]},
          projections(width, bias),
          {},
          Flops(attention_flops(real(length), real(inputs[1].shape[0]), real(width), real(heads), bias))};
}

OpResult infer_additive_attention(const Attributes& attributes, std::span<const TensorType> inputs) {
  require_dimensions(inputs, 1, kSequence);
  const Shape &query = inputs[0].shape, &key = inputs[1].shape;
  const std::int64_t units = integer(attributes, "num_units");
  // Projections; per pair of positions and unit: two additions, tanh, a multiply-add; softmax; weighted sum.
  const double pairs = real(query[0]) * real(key[0]), u = real(units);
  const double project = 2.0 * u * (real(query[0]) * real(query[1]) + real(key[0]) * real(key[1]));
  return {{{{query[0], key[1]}, inputs[0].dtype}},
          {{"linear_q.weight", {units, query[1]}},
           {"linear_k.weight", {units, key[1]}},
           {"linear_att", {units}},
           {"normalize_scalar", {1}},
           {"normalize_bias", {units}}},
          {},
          Flops(project + pairs * (5.0 * u + 5.0 + 2.0 * real(key[1])))};
}

OpResult infer_attention(const Attributes&, std::span<const TensorType> inputs) {
  const Shape &q = inputs[0].shape, &k = inputs[1].shape, &v = inputs[2].shape;
  if (q.size() < 2) refuse_input(0, inputs[0], "queries, [..., positions, width]");
  if (k.size() != q.size() || leading(k) != leading(q) || k.back() != q.back())
    refuse_input(1, inputs[1], "keys, [..., positions, width] for queries " + to_text(q));
  if (v.size() != q.size() || leading(v) != leading(q) || v[v.size() - 2] != k[k.size() - 2])
    refuse_input(2, inputs[2], "values, [..., positions, width] for keys " + to_text(k));
  TensorType output = inputs[0];
  output.shape.back() = v.back();
  // Two products and the softmax; a causal mask does not lower the count.
  const double pairs = elements({leading(q)}) * real(q[q.size() - 2]) * real(k[k.size() - 2]);
  return {{std::move(output)}, {}, {}, Flops(pairs * (2.0 * real(q.back()) + 2.0 * real(v.back()) + 5.0))};
}

/// Scores of `heads` heads: products, softmax and weighted sum written out. Kept: what the products read, the
/// shares, and with dropout what is left of them and its mask.
OpInside written_out(double query, double key, double width, double heads, bool causal, double dropout) {
  const double pairs = heads * query * key;
  const double mask = (causal ? query * key : 0.0) + (dropout > 0 ? pairs : 0.0);
  const double passes = 4 + (causal ? 2 : 0) + (dropout > 0 ? 3 : 0);
  return {.kept = 2 * (query + key) * width + (dropout > 0 ? 2 : 1) * pairs,
          .kept_bytes = mask,
          .moved = 2 * (3 * query + 2 * key) * width + passes * pairs,
          .flops = 4.0 * query * key * width + 5.0 * pairs};
}

/// The same by LibTorch's kernels, which hold no scores: one number for each query and head.
OpInside by_kernel(double query, double key, double width, double heads, bool causal) {
  const double rows = (3 * query + 2 * key) * width;
  return {.kept = rows,
          .kept_bytes = kSumOfScores * heads * query,
          .moved = 2 * rows,
          .flops = 4.0 * query * key * width + 5.0 * heads * query * key,
          .one_kernel = true,
          .computed = causal ? kCausalShare : 1};
}

/// Written out are those with dropout and with a bias to the scores. The kernel's backward is written: it joins
/// the heads anew.
OpInside multi_head_attention_inside(const Attributes& attributes, std::span<const TensorType> inputs) {
  const double length = real(inputs[0].shape[0]), width = real(inputs[0].shape[1]);
  const double heads = real(integer(attributes, "num_heads")), dropout = number(attributes, "dropout");
  const bool causal = boolean(attributes, "causal");
  if (dropout > 0 || inputs.size() > 1) return written_out(length, length, width, heads, causal, dropout);
  OpInside inside = by_kernel(length, length, width, heads, causal);
  inside.kept -= length * width;
  return inside;
}

OpInside cross_attention_inside(const Attributes& attributes, std::span<const TensorType> inputs) {
  const double query = real(inputs[0].shape[0]), key = real(inputs[1].shape[0]);
  const double width = real(inputs[0].shape[1]), heads = real(integer(attributes, "num_heads"));
  const double dropout = number(attributes, "dropout");
  return dropout > 0 ? written_out(query, key, width, heads, false, dropout)
                     : by_kernel(query, key, width, heads, false);
}

OpInside additive_attention_inside(const Attributes& attributes, std::span<const TensorType> inputs) {
  const double pairs = real(inputs[0].shape[0]) * real(inputs[1].shape[0]);
  const double units = real(integer(attributes, "num_units"));
  return {.kept = pairs * (units + 1),
          .moved = pairs * (3 * units + 4),
          .flops = pairs * (5.0 * units + 5.0 + 2.0 * real(inputs[1].shape[1]))};
}

/// LibTorch's own keeps one number for each query; with dropout it is written out.
OpInside scaled_dot_product_attention_inside(const Attributes& attributes, std::span<const TensorType> inputs) {
  const Shape& q = inputs[0].shape;
  const double query = real(q[q.size() - 2]), key = real(inputs[1].shape[q.size() - 2]);
  const double heads = elements({leading(q)}), dropout = number(attributes, "dropout");
  const double flops = infer_attention(attributes, inputs).forward_flops.value;
  const bool causal = boolean(attributes, "causal");
  if (dropout == 0) {
    return {.kept_bytes = kSumOfScores * heads * query,
            .keeps_output = true,
            .flops = flops,
            .one_kernel = true,
            .computed = causal ? kCausalShare : 1};
  }
  OpInside inside = written_out(query, key, heads * real(q.back()), heads, causal, dropout);
  inside.flops = flops;
  return inside;
}

AttributeSpec heads_attribute() {
  return required_integer("num_heads", 1, kMaxSize, "heads; a divisor of the width");
}
AttributeSpec dropout_attribute() {
  return probability_attribute("dropout", 0.0, "probability, on the attention weights, in training");
}
AttributeSpec bias_attribute() { return flag_attribute("bias", true, "add a bias in both projections"); }
AttributeSpec scaled_attribute() {
  return flag_attribute("scaled", true, "divide the scores by the square root of a head's width");
}

OpResult infer_relative_position_bias(const Attributes& attributes, std::span<const TensorType> inputs) {
  if (inputs[0].dtype != DType::int64) refuse_input(0, inputs[0], "int64, such as the model's tokens");
  const std::int64_t buckets = integer(attributes, "num_buckets");
  if (buckets % 4 != 0)
    throw Error(ErrorKind::data, "num_buckets " + std::to_string(buckets) + " must be a multiple of 4");
  const Shape table{buckets, integer(attributes, "num_heads")};
  return {{{table, DType::float32}}, {{"weight", table}}, {}, {}};
}

}  // namespace

std::vector<OpRow> attention_ops() {
  return {
      {.name = "multi_head_attention",
       .summary = "self attention; a second input biases relative positions",
       .shapes = "[l, d] -> the same; self attention. A second input, [num_buckets, num_heads], biases the "
                 "scores by relative position",
       .flops = "8 l d² + 4 l² d + 5 num_heads l², + 4 l d with bias, + num_heads l² with a second input",
       .examples = {"5x8 num_heads=2", "4x6 num_heads=3 causal=true dropout=0.3", "3x4 num_heads=2 bias=false",
                    "5x4 8x2 num_heads=2 scaled=false", "6x4 4x2 num_heads=2 causal=true max_distance=5"},
       .max_inputs = 2,
       .input = kSequence,
       .attributes = {heads_attribute(),
                      flag_attribute("causal", false, "a position sees itself and earlier ones only"),
                      dropout_attribute(), bias_attribute(), scaled_attribute(),
                      integer_attribute(
                          "max_distance", 128, 2, kMaxSize,
                          "relative positions from here on share a bucket; only with a second input")},
       .draws = true,
       .tensor = TensorSplit::attention,
       .work = {.kind = OpWork::Kind::products,
                .keeps = OpWork::Keeps::inputs,
                .kernels = 8,
                .weight_products = 2,
                .attention = true,
                .adds_products = true,
                .inside = multi_head_attention_inside},
       .infer = infer_multi_head_attention},
      {.name = "cross_attention",
       .summary = "attention from the first input to the second",
       .shapes = "[l, d], [k, d] -> [l, d]; from the first to the second",
       .flops = "4 (l + k) d² + 4 l k d + 5 num_heads l k, + 2 (l + k) d with bias",
       .examples = {"3x4 5x4 num_heads=2 dropout=0.3", "3x4 2x4 num_heads=1 bias=false scaled=false"},
       .min_inputs = 2,
       .max_inputs = 2,
       .input = kSequence,
       .attributes = {heads_attribute(), dropout_attribute(), bias_attribute(), scaled_attribute()},
       .draws = true,
       .work = {.kind = OpWork::Kind::products,
                .keeps = OpWork::Keeps::inputs,
                .kernels = 9,
                .weight_products = 3,
                .attention = true,
                .inside = cross_attention_inside},
       .infer = infer_cross_attention},
      {.name = "additive_attention",
       .summary = "attention of queries to keys by a perceptron",
       .shapes = "queries [l, d], keys [k, e] -> [l, e]",
       .flops = "2 u (l d + k e) + l k (5 u + 5 + 2 e), u = num_units",
       .examples = {"3x4 2x5 num_units=6"},
       .min_inputs = 2,
       .max_inputs = 2,
       .input = kSequence,
       .attributes = {required_integer("num_units", 1, kMaxSize, "hidden units of the perceptron")},
       .work = {.kind = OpWork::Kind::products,
                .keeps = OpWork::Keeps::inputs,
                .kernels = 7,
                .inside = additive_attention_inside},
       .infer = infer_additive_attention},
      {.name = "scaled_dot_product_attention",
       .summary = "softmax(q k^T / sqrt(width)) v of queries, keys and values",
       .shapes = "queries [..., l, d], keys [..., k, d], values [..., k, e] -> [..., l, e]",
       .flops = "2 d + 2 e + 5 per pair of positions",
       .examples = {"2x3x4 2x5x4 2x5x6 dropout=0.3", "4x3 4x3 4x2 causal=true"},
       .min_inputs = 3,
       .max_inputs = 3,
       .attributes = {flag_attribute("causal", false, "a position sees itself and earlier ones only"),
                      probability_attribute("dropout", 0.0,
                                            "probability, on the attention weights, in training")},
       .draws = true,
       .work = {.kind = OpWork::Kind::products,
                .keeps = OpWork::Keeps::inputs,
                .kernels = 1,
                .weight_products = 0,
                .attention = true,
                .inside = scaled_dot_product_attention_inside},
       .infer = infer_attention},
      {.name = "relative_position_bias",
       .summary = "learned bias per bucket of relative positions and head",
       .shapes = "int64 [...] -> [num_buckets, num_heads], the learned table for each sample",
       .flops = "0",
       .examples = {"int64:7 num_heads=3 num_buckets=4"},
       .input = kAny,
       .attributes = {required_integer("num_heads", 1, kMaxSize, "heads of the attention"),
                      integer_attribute("num_buckets", 32, 4, kMaxSize,
                                        "buckets of relative positions, a multiple of 4")},
       .infer = infer_relative_position_bias},
  };
}

}  // namespace pp::detail
