// Element types and shapes of the documents. Shapes are per sample, without the batch dimension.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "libprofile/core/enum_names.h"
#include "libprofile/core/units.h"

namespace pp {

/// `boolean` is written bool: for constants, buffers and tensors within a model, never for its data.
enum class DType { float32, float64, bfloat16, int64, uint8, boolean };
template <>
struct EnumNames<DType> {
  static constexpr std::array table{
      std::pair{DType::float32, "float32"sv},   std::pair{DType::float64, "float64"sv},
      std::pair{DType::bfloat16, "bfloat16"sv}, std::pair{DType::int64, "int64"sv},
      std::pair{DType::uint8, "uint8"sv},       std::pair{DType::boolean, "bool"sv}};
};
constexpr std::int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::float64:
    case DType::int64: return 8;
    case DType::float32: return 4;
    case DType::bfloat16: return 2;
    case DType::uint8:
    case DType::boolean: return 1;
  }
  return 0;
}
constexpr bool is_floating(DType dtype) {
  return dtype == DType::float32 || dtype == DType::float64 || dtype == DType::bfloat16;
}

/// Types of fewer bits than a half, with a scale for each tensor (float8), each 32 numbers (mxfloat8: MXFP8) or
/// each 16 (float4: NVFP4). Products alone are in them, and what they keep of their inputs; the rest is
/// bfloat16.
enum class NarrowType { float8, mxfloat8, float4 };
template <>
struct EnumNames<NarrowType> {
  static constexpr std::array table{std::pair{NarrowType::float8, "float8"sv},
                                    std::pair{NarrowType::mxfloat8, "mxfloat8"sv},
                                    std::pair{NarrowType::float4, "float4"sv}};
};
/// Bytes of a number, its share of a scale of one byte included.
constexpr double bytes_per_number(NarrowType type) {
  switch (type) {
    case NarrowType::float8: return 1;
    case NarrowType::mxfloat8: return 1 + 1.0 / 32;
    case NarrowType::float4: return 0.5 + 1.0 / 16;
  }
  return 1;
}

/// What a run computes in: the type of weights and activations, and a narrower one of products if there is one.
struct RunType {
  DType dtype = DType::float32;
  std::optional<NarrowType> products = std::nullopt;

  RunType() = default;
  RunType(DType type) : dtype(type) {}                                  // NOLINT: a type is a run's type
  RunType(NarrowType type) : dtype(DType::bfloat16), products(type) {}  // NOLINT
  bool operator==(const RunType&) const = default;
};
std::string_view name_of(const RunType& type);
/// Floating types, then narrow ones: `float32`, .., `float4`.
std::vector<std::string> run_type_names();
/// Throws pp::Error of `kind`, which names `what` and the types.
RunType parse_run_type(std::string_view name, std::string_view what, ErrorKind kind);

/// How tensors of four dimensions, [n, c, h, w], lie in memory: `channels_last` as [n, h, w, c]. Values and
/// shapes are the same, kernels and their rounding are not.
enum class MemoryFormat { contiguous, channels_last };
template <>
struct EnumNames<MemoryFormat> {
  static constexpr std::array table{std::pair{MemoryFormat::contiguous, "contiguous"sv},
                                    std::pair{MemoryFormat::channels_last, "channels_last"sv}};
};

/// Type of products under LibTorch's autocast: weights, their gradients and sums that need it stay float32.
enum class Autocast { bfloat16, float16 };
template <>
struct EnumNames<Autocast> {
  static constexpr std::array table{std::pair{Autocast::bfloat16, "bfloat16"sv},
                                    std::pair{Autocast::float16, "float16"sv}};
};

using Shape = std::vector<std::int64_t>;

struct TensorType {
  Shape shape;
  DType dtype = DType::float32;
  bool operator==(const TensorType&) const = default;
};
std::int64_t element_count(const Shape& shape);
/// More than 2^40 elements: refused, so that no product of sizes overflows.
bool too_large(const Shape& shape);
Bytes bytes_of(const TensorType& type);
/// `[1, 28, 28]`
std::string to_text(const Shape& shape);

struct ParameterSpec {
  std::string name;  ///< within the layer: `weight`, of a graph `conv1.weight`; model-wide: `layer.name`
  Shape shape;
  DType dtype = DType::float32;  ///< floating: the type of the run; only buffers have others
  bool operator==(const ParameterSpec&) const = default;
};

/// A tensor within a layer: dimension `batch_dim` has `rows` times the number of samples (windows of an image:
/// 64 rows a sample), `shape` are the others; rows 0: no batch, `shape` is all there is.
struct RowTensor {
  TensorType type;
  std::int64_t rows = 1;
  std::int64_t batch_dim = 0;
  bool operator==(const RowTensor&) const = default;
};
/// All dimensions, for `samples` samples.
Shape full_shape(const RowTensor& tensor, std::int64_t samples);

}  // namespace pp
