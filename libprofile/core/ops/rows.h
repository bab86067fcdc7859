// Building blocks of the op table's rows; only the files beside it include it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "libprofile/core/error.h"
#include "libprofile/core/ops/attributes.h"
#include "libprofile/core/ops/op_table.h"

namespace pp::detail {

/// The largest attribute that stands for a size: shapes computed from such values stay far below 2^63.
inline constexpr double kMaxSize = 1 << 20;

/// Inputs that rows have in common.
inline constexpr OpInput kAny{.floating = false};
inline constexpr OpInput kImage{3, 3, "three dimensions, [channels, height, width]"};
inline constexpr OpInput kSequence{2, 2, "two dimensions, [positions, width]"};
inline constexpr OpInput kWidth{1, kMostDimensions, "at least one dimension, [..., width]"};
inline constexpr OpInput kFeatures{1, kMostDimensions, "at least one dimension, [..., features]"};

AttributeSpec required_integer(std::string_view name, double min, double max, std::string_view summary);
AttributeSpec required_integers(std::string_view name, double min, double max, std::string_view summary);
AttributeSpec integer_attribute(std::string_view name, std::int64_t value, double min, double max,
                                std::string_view summary);
AttributeSpec integer_like(std::string_view name, std::string_view other, double min, double max,
                           std::string_view summary);
AttributeSpec number_attribute(std::string_view name, double value, double min, double max,
                               std::string_view summary);
/// Below 1; at 0 nothing is drawn.
AttributeSpec probability_attribute(std::string_view name, double value, std::string_view summary);
/// Silent: initial weights by another rule than PyTorch's.
AttributeSpec std_attribute();
AttributeSpec flag_attribute(std::string_view name, bool value, std::string_view summary);
AttributeSpec words_attribute(std::string_view name, std::vector<std::string_view> choices,
                              std::string_view summary);
/// One of the enumeration's names, of which the first is the default.
template <NamedEnum E>
AttributeSpec choice_attribute(std::string_view name, std::string_view summary) {
  std::vector<std::string_view> choices;
  for (const auto& [value, word] : EnumNames<E>::table) choices.push_back(word);
  return words_attribute(name, std::move(choices), summary);
}
/// One that is written only where it is not the default.
AttributeSpec silent(AttributeSpec attribute);

/// Throws pp::Error (data): `input 1 is float32 [784], but needs MEANING`.
[[noreturn]] void refuse_input(std::size_t position, const TensorType& found, const std::string& meaning);
void require_dimensions(std::span<const TensorType> inputs, std::size_t position, const OpInput& needed);
void require_floating(std::span<const TensorType> inputs);
double elements(const TensorType& type);
/// Of the pairs of positions that a causal mask lets through, for long sequences.
inline constexpr double kCausalShare = 0.5;
/// Bytes that a kernel which holds no scores keeps for each query and head: the logarithm of a sum, in float32.
inline constexpr double kSumOfScores = 4;
inline double real(std::int64_t value) { return static_cast<double>(value); }
/// All dimensions but the last two.
inline Shape leading(const Shape& shape) { return {shape.begin(), shape.end() - 2}; }
/// The attribute `dim`; throws when input 0 has fewer dimensions.
std::size_t dimension(const Attributes& attributes, std::span<const TensorType> inputs);
AttributeSpec dim_attribute();

/// One side of a kernel or of a pool.
struct Window {
  std::int64_t kernel = 1, stride = 1, padding = 0, dilation = 1;
  bool ceil = false;  ///< keep a last window that hangs over the edge, if it starts inside
};
/// Positions of the window along one side: floor((size + 2 padding - dilation (kernel-1) - 1) / stride) + 1.
std::int64_t positions(std::int64_t size, const Window& window);

/// The groups of rows, each the file of its name; op_table() joins and sorts them.
std::vector<OpRow> attention_ops(), convolution_ops(), dropout_ops(), elementwise_ops(), embedding_ops(),
    expert_ops(), grouped_query_attention_ops(), linear_ops(), normalisation_ops(), recurrent_ops(),
    shape_ops(), losses();

}  // namespace pp::detail
