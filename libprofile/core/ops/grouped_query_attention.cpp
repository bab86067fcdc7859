// The row of attention over projected queries, keys and values, as decoders since Llama have it: fewer heads of
// keys and values than of queries, rotary positions, norms of queries and keys, a window, capped scores. And
// with keys and values made of a narrow vector: DeepSeek-AI, DeepSeek-V2, 2024, sec. 2.1.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "libprofile/core/ops/rows.h"

namespace pp::detail {
namespace {

[[noreturn]] void refuse_attention(const std::string& message) { throw Error(ErrorKind::data, message); }

struct Sizes {
  std::int64_t length = 0, heads = 0, groups = 0;  ///< groups: heads of keys and values
  std::int64_t width = 0, value_width = 0;         ///< of a head
};

std::int64_t width_of_head(std::span<const TensorType> inputs, std::size_t input, std::int64_t heads,
                           const std::string& attribute) {
  const std::int64_t width = inputs[input].shape[1];
  if (width % heads == 0) return width / heads;
  refuse_attention(attribute + " " + std::to_string(heads) + " must divide the width of input " +
                   std::to_string(input) + ", " + std::to_string(width));
}

bool is_latent(const Attributes& attributes) {
  return choice<HeadPacking>(attributes, "packing") == HeadPacking::latent;
}

/// Each head's keys end with the third input, and are turned there.
Sizes latent_sizes(const Attributes& attributes, std::span<const TensorType> inputs, Sizes sizes) {
  if (inputs.size() != 3 || sizes.groups != sizes.heads || boolean(attributes, "norms"))
    refuse_attention(
        "packing \"latent\" needs three inputs, as many num_key_value_heads as num_heads, no norms");
  const std::int64_t turned = inputs[2].shape[1];
  sizes.width = width_of_head(inputs, 0, sizes.heads, "num_heads");
  sizes.value_width = width_of_head(inputs, 1, sizes.heads, "num_heads") - (sizes.width - turned);
  if (sizes.width <= turned || sizes.value_width < 1 || integer(attributes, "rotary_dim") != turned ||
      inputs[1].shape[0] != sizes.length || inputs[2].shape[0] != sizes.length)
    refuse_attention(
        "queries, keys with values, and the rotated key must have the same positions, and heads of " +
        std::to_string(sizes.width) + " end with the rotated " + std::to_string(turned) +
        ", which is rotary_dim");
  return sizes;
}

Sizes sizes_of(const Attributes& attributes, std::span<const TensorType> inputs) {
  for (std::size_t i = 0; i < inputs.size(); ++i) require_dimensions(inputs, i, kSequence);
  Sizes sizes{.length = inputs[0].shape[0],
              .heads = integer(attributes, "num_heads"),
              .groups = integer(attributes, "num_key_value_heads")};
  if (sizes.heads % sizes.groups != 0) {
    refuse_attention("num_key_value_heads " + std::to_string(sizes.groups) + " must divide num_heads, " +
                     std::to_string(sizes.heads));
  }
  if (is_latent(attributes)) return latent_sizes(attributes, inputs, sizes);
  if (inputs.size() == 1) {
    sizes.width = sizes.value_width =
        width_of_head(inputs, 0, sizes.heads + 2 * sizes.groups, "num_heads + 2 num_key_value_heads,");
    if (choice<HeadPacking>(attributes, "packing") == HeadPacking::heads && sizes.heads != sizes.groups)
      refuse_attention("packing \"heads\" needs as many num_key_value_heads as num_heads");
    return sizes;
  }
  if (inputs.size() == 2)
    refuse_attention("has two inputs; give queries, keys and values, or one tensor of all three");
  sizes.width = width_of_head(inputs, 0, sizes.heads, "num_heads");
  const std::int64_t length = sizes.length, keys = sizes.groups * sizes.width;
  if (inputs[1].shape != Shape{length, keys})
    refuse_input(1, inputs[1], "keys, " + to_text(Shape{length, keys}) + ", for these queries");
  if (inputs[2].shape[0] != length)
    refuse_input(2, inputs[2], "values of " + std::to_string(length) + " positions");
  sizes.value_width = width_of_head(inputs, 2, sizes.groups, "num_key_value_heads");
  return sizes;
}

void check_rotary(const Attributes& attributes, const Sizes& sizes) {
  const std::int64_t turned = integer(attributes, "rotary_dim");
  if (turned % 2 != 0 || turned > sizes.width) {
    refuse_attention("rotary_dim " + std::to_string(turned) +
                     " must be even and at most the width of a head, " + std::to_string(sizes.width));
  }
  const auto scaling = choice<RotaryScaling>(attributes, "rotary_scaling");
  if (scaling == RotaryScaling::none || scaling == RotaryScaling::linear) return;
  if (integer(attributes, "rotary_original_length") == 0)
    refuse_attention("rotary_scaling \"" + std::string(name_of(scaling)) +
                     "\" needs rotary_original_length, the positions it was trained with");
  if (scaling == RotaryScaling::llama3 &&
      number(attributes, "rotary_high_freq_factor") <= number(attributes, "rotary_low_freq_factor"))
    refuse_attention("rotary_high_freq_factor must be above rotary_low_freq_factor");
}

/// Positions that a query sees when all of them are there: a window's, or all.
double seen(const Attributes& attributes, const Sizes& sizes) {
  const std::int64_t window = integer(attributes, "sliding_window");
  return real(window > 0 ? std::min(window, sizes.length) : sizes.length);
}

/// Pairs of positions whose scores count: with a window those that a query sees, else all. A causal mask does
/// not lower the count.
double pairs(const Attributes& attributes, const Sizes& sizes) {
  return real(sizes.heads) * real(sizes.length) * seen(attributes, sizes);
}

/// Of these pairs, the share that a causal kernel computes: of l positions and a window of w, l w - w^2 / 2 of
/// l w. A window of l is no window: a half.
double computed(const Attributes& attributes, const Sizes& sizes) {
  if (!boolean(attributes, "causal")) return 1;
  return 1 - kCausalShare * seen(attributes, sizes) / real(sizes.length);
}

/// Of a pair: two products, softmax 5, a cap 3.
double flops_of_pair(const Attributes& attributes, const Sizes& sizes) {
  return 2.0 * real(sizes.width) + 2.0 * real(sizes.value_width) + 5.0 +
         (number(attributes, "soft_cap") > 0 ? 3.0 : 0.0);
}

OpResult infer_grouped_query_attention(const Attributes& attributes, std::span<const TensorType> inputs) {
  const Sizes sizes = sizes_of(attributes, inputs);
  check_rotary(attributes, sizes);
  OpResult result{{{{sizes.length, sizes.heads * sizes.value_width}, inputs[0].dtype}}, {}, {}, {}};
  const std::int64_t keys = is_latent(attributes) ? 1 : sizes.groups;
  const double heads = real(sizes.length) * real(sizes.heads + keys);  // that are turned
  double flops = pairs(attributes, sizes) * flops_of_pair(attributes, sizes) +
                 3.0 * heads * real(integer(attributes, "rotary_dim"));
  if (boolean(attributes, "norms")) {
    result.parameters = {{"q_norm.weight", {sizes.width}}, {"k_norm.weight", {sizes.width}}};
    flops += 4.0 * heads * real(sizes.width);
  }
  if (boolean(attributes, "sinks")) {
    result.parameters.push_back({"sinks", {sizes.heads}});
    flops += 5.0 * real(sizes.length) * real(sizes.heads);
  }
  result.forward_flops = Flops(flops);
  return result;
}

/// By LibTorch's kernels, which hold no scores: the output and a float32 for each query and head. With a cap or
/// dropout the scores are held: before the cap and behind it, as shares, and what dropout leaves of them. Keys
/// from a latent vector are put together for every head, and kept so.
OpInside grouped_query_attention_inside(const Attributes& attributes, std::span<const TensorType> inputs) {
  const Sizes sizes = sizes_of(attributes, inputs);
  const double rows = real(sizes.length), queries = rows * real(sizes.heads);
  const double all =
      queries * real(sizes.width) + rows * real(sizes.groups * (sizes.width + sizes.value_width));
  const double flops = pairs(attributes, sizes) * flops_of_pair(attributes, sizes);
  const bool one_kernel = number(attributes, "soft_cap") == 0 && number(attributes, "dropout") == 0;
  OpInside inside{.kept = is_latent(attributes) ? queries * real(sizes.width) : 0,
                  .kept_bytes = one_kernel ? kSumOfScores * queries : 0,
                  .keeps_output = one_kernel,
                  .moved = all,
                  .flops = flops,
                  .one_kernel = one_kernel,
                  .computed = computed(attributes, sizes)};
  const double scores = queries * rows;
  if (number(attributes, "soft_cap") > 0) {
    inside.kept += 2 * scores;
    inside.moved += 4 * scores;
  }
  if (number(attributes, "dropout") > 0) {
    inside.kept += scores;
    inside.kept_bytes += scores;
    inside.moved += 4 * scores;
  }
  return inside;
}

std::vector<AttributeSpec> attributes_of_row() {
  constexpr double kMost = 1e9;
  return {
      required_integer("num_heads", 1, kMaxSize, "heads of queries"),
      integer_like("num_key_value_heads", "num_heads", 1, kMaxSize,
                   "heads of keys and values; a divisor of num_heads"),
      flag_attribute("causal", true, "a position sees itself and earlier ones only"),
      silent(choice_attribute<HeadPacking>(
          "packing",
          "of one input: all queries, keys, values; or head by head a query, key, value; latent: of "
          "three inputs")),
      silent(integer_attribute("sliding_window", 0, 0, kMost,
                               "a position sees so many, itself included; 0: all; only with causal")),
      silent(number_attribute("scale", 0, 0, 1e6, "of the scores; 0: 1 / sqrt(width of a head)")),
      silent(number_attribute("soft_cap", 0, 0, 1e6, "scores become cap tanh(score / cap); 0: they stay")),
      silent(probability_attribute("dropout", 0, "probability, on the attention weights, in training")),
      silent(flag_attribute("norms", false, "rms norm of each head of queries and of keys")),
      silent(flag_attribute("sinks", false, "each head has a learned score that no value follows")),
      silent(number_attribute("sinks_std", 0, 0, 100, "initial scores are N(0, sinks_std); 0: all 0")),
      silent(number_attribute("norm_eps", 1e-6, 0, 1, "added to the mean square")),
      silent(integer_attribute("rotary_dim", 0, 0, kMaxSize,
                               "leading elements of a head that are rotated; latent: the last")),
      silent(
          integer_attribute("rotary_exponent_dim", 0, 0, kMaxSize, "divisor of the exponents; 0: rotary_dim")),
      silent(number_attribute("rotary_base", 10000, 1e-3, 1e15, "of the wavelengths")),
      silent(flag_attribute("rotary_interleaved", false, "pairs are neighbours, not the halves' equal places")),
      silent(choice_attribute<RotaryScaling>("rotary_scaling", "of the frequencies")),
      silent(number_attribute("rotary_factor", 1, 1e-6, 1e6, "by which the positions are stretched")),
      silent(integer_attribute("rotary_original_length", 0, 0, kMost, "positions before scaling")),
      silent(number_attribute("rotary_low_freq_factor", 1, 1e-6, 1e6,
                              "llama3: original length / longest wavelength kept")),
      silent(number_attribute("rotary_high_freq_factor", 4, 1e-6, 1e6,
                              "llama3: the same of those that are not scaled")),
      silent(number_attribute("rotary_beta_fast", 32, 1e-6, 1e6, "yarn: turns from which frequencies stay")),
      silent(number_attribute("rotary_beta_slow", 1, 1e-6, 1e6, "yarn: turns up to which all are scaled")),
      silent(flag_attribute("rotary_truncate", true, "yarn: both ends of the ramp are whole numbers")),
      silent(number_attribute("rotary_magnitude", 1, 1e-6, 1e6, "factor of sines and cosines")),
  };
}

}  // namespace

std::vector<OpRow> grouped_query_attention_ops() {
  return {
      {.name = "grouped_query_attention",
       .summary = "attention of projected queries, keys and values, by position, of groups of heads",
       .shapes = "queries [l, num_heads d], keys [l, num_key_value_heads d], values [l, "
                 "num_key_value_heads e] -> [l, num_heads e]; or all in one, with d = e; latent: queries [l, "
                 "num_heads (d + r)], keys and values [l, num_heads (d + e)], rotated key [l, r]",
       .flops = "2 d + 2 e + 5 (+ 3 capped) per head and pair of positions, in a window l times its size; "
                "3 per rotated element, 4 per normed one, 5 per sink and position",
       .examples = {"5x12 5x4 5x4 num_heads=6 num_key_value_heads=2 rotary_dim=2",
                    "4x8 4x8 4x6 num_heads=2 causal=false scale=0.7",
                    "6x8 6x4 6x4 num_heads=2 num_key_value_heads=1 norms=true rotary_dim=4 "
                    "rotary_scaling=llama3 rotary_factor=4.0 rotary_original_length=16",
                    "5x16 num_heads=2 num_key_value_heads=1 rotary_dim=2 sliding_window=3",
                    "5x24 num_heads=2 packing=heads norms=true rotary_dim=4 rotary_interleaved=true "
                    "rotary_scaling=yarn rotary_factor=2.0 rotary_original_length=32",
                    "5x8 5x4 5x4 num_heads=4 num_key_value_heads=2 soft_cap=1.5 sliding_window=2 rotary_dim=2 "
                    "rotary_scaling=linear rotary_factor=3.0",
                    "4x8 4x8 4x8 num_heads=4 dropout=0.3",
                    "5x12 5x14 5x2 num_heads=2 packing=latent rotary_dim=2 rotary_interleaved=true",
                    "4x8 4x6 4x2 num_heads=2 packing=latent rotary_dim=2 scale=0.7 dropout=0.3",
                    "6x8 6x4 6x4 num_heads=4 num_key_value_heads=2 sliding_window=3 rotary_dim=2 sinks=true",
                    "5x16 num_heads=2 num_key_value_heads=1 norms=true sinks=true",
                    "4x8 4x4 4x4 num_heads=4 num_key_value_heads=2 soft_cap=1.5 dropout=0.3 sinks=true"},
       .max_inputs = 3,
       .attributes = attributes_of_row(),
       .draws = true,
       .weight_gradient_with_input = true,
       .positions = Positions::causal,
       .tensor = TensorSplit::heads,
       .work = {.kind = OpWork::Kind::products,
                .keeps = OpWork::Keeps::inputs,
                .kernels = 4,
                .weight_products = 0,
                .attention = true,
                .inside = grouped_query_attention_inside},
       .infer = infer_grouped_query_attention}};
}

}  // namespace pp::detail
