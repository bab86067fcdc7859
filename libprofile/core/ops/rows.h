// Building blocks of the op table's rows; only the files beside it include it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "libprofile/core/error.h"
#include "libprofile/core/ops/op_table.h"

namespace pp::detail {

/// The largest attribute that stands for a size: shapes computed from such values stay far below 2^63.
inline constexpr double kMaxSize = 1 << 20;

AttributeSpec required_integer(std::string_view name, double min, double max, std::string_view summary);
AttributeSpec required_integers(std::string_view name, double min, double max, std::string_view summary);
AttributeSpec integer_attribute(std::string_view name, std::int64_t value, double min, double max,
                                std::string_view summary);
AttributeSpec integer_like(std::string_view name, std::string_view other, double min, double max,
                           std::string_view summary);
AttributeSpec number_attribute(std::string_view name, double value, double min, double max,
                               std::string_view summary);
AttributeSpec flag_attribute(std::string_view name, bool value, std::string_view summary);

/// Throws pp::Error (data): `input 1 is float32 [784], but needs MEANING`.
[[noreturn]] void refuse_input(std::size_t position, const TensorType& found, const std::string& meaning);
/// `meaning` names the dimensions: `[channels, height, width]`.
void require_rank(std::span<const TensorType> inputs, std::size_t position, std::size_t rank,
                  const std::string& meaning);
/// `meaning` as for require_rank(): `[..., width]`.
void require_last_dimension(std::span<const TensorType> inputs, const std::string& meaning);
void require_floating(std::span<const TensorType> inputs);
double elements(const TensorType& type);
/// The attribute `dim`; throws when input 0 has fewer dimensions.
std::size_t dimension(const Attributes& attributes, std::span<const TensorType> inputs);
AttributeSpec dim_attribute();

/// The groups of rows; op_table() joins and sorts them.
std::vector<OpRow> attention_ops();
std::vector<OpRow> basic_ops();
std::vector<OpRow> image_ops();
std::vector<OpRow> pointwise_ops();
std::vector<OpRow> sequence_ops();
std::vector<OpRow> shape_ops();
std::vector<OpRow> losses();

}  // namespace pp::detail
