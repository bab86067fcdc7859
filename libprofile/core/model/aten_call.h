// A call of one of LibTorch's own operations, written into a model: what op `aten` runs. Values only; that the
// target exists and takes these arguments is checked where LibTorch is, when the layer is bound.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "libprofile/core/enum_names.h"
#include "libprofile/core/json_reader.h"
#include "libprofile/core/model/constant_formula.h"
#include "libprofile/core/tensor_type.h"

namespace pp {

/// A tensor of the call: the k-th input, or one of its named tensors.
struct TensorArgument {
  enum class Kind { input, parameter, buffer, constant };
  Kind kind = Kind::input;
  int index = 0;  ///< of the inputs, or in the call's list
  bool operator==(const TensorArgument&) const = default;
};

/// per_sample * b + fixed, for b samples.
struct BatchInteger {
  std::int64_t per_sample = 0;
  std::int64_t fixed = 0;
  bool operator==(const BatchInteger&) const = default;
};

/// Numbers that JSON cannot write.
enum class SpecialNumber { negative_infinity, infinity, nan };
template <>
struct EnumNames<SpecialNumber> {
  static constexpr std::array table{std::pair{SpecialNumber::negative_infinity, "-inf"sv},
                                    std::pair{SpecialNumber::infinity, "inf"sv},
                                    std::pair{SpecialNumber::nan, "nan"sv}};
};
double value_of(SpecialNumber number);

struct AtenValue;
using AtenList = std::vector<AtenValue>;
/// An argument; std::monostate is null.
struct AtenValue {
  std::variant<std::monostate, bool, std::int64_t, double, std::string, TensorArgument, BatchInteger,
               SpecialNumber, DType, AtenList>
      value;
  bool operator==(const AtenValue&) const = default;
};

/// A trained tensor or a buffer of the call.
struct NamedTensorType {
  std::string name;
  TensorType type;
  bool operator==(const NamedTensorType&) const = default;
};

/// A tensor that is written into the model, value by value in row order or as a formula.
struct AtenConstant {
  std::string name;
  TensorType type;
  std::variant<std::vector<std::int64_t>, std::vector<double>, ConstantFormula> values;  ///< lists by the type
  bool operator==(const AtenConstant& other) const;                                      ///< NaN equals NaN
};
/// In row order. O(elements) memory.
std::vector<double> values_of(const AtenConstant& constant);

struct AtenCall {
  std::string target;                                       ///< `aten::add.Tensor`
  std::map<std::string, AtenValue, std::less<>> arguments;  ///< by the names of the operation's schema
  std::vector<NamedTensorType> parameters;
  std::vector<NamedTensorType> buffers;
  std::vector<AtenConstant> constants;
  std::vector<RowTensor> outputs;  ///< as the exporter saw them
  double flops = 0;                ///< per sample
  bool precise = false;            ///< in float32, also in a run of a narrower type
  bool operator==(const AtenCall&) const = default;
};

/// Of one call.
inline constexpr std::size_t kMostArguments = 64;
inline constexpr std::size_t kMostTensors = 1024;  ///< parameters, buffers, constants, outputs: of each
inline constexpr std::size_t kMostListed = 4096;   ///< of one list
inline constexpr int kMostNested = 3;              ///< lists within lists
inline constexpr std::size_t kMostValues = std::size_t{1} << 20;  ///< of one constant

/// Strict: what is no such value, or more than the limits allow, is refused with its pointer. Names of tensors
/// become indices.
AtenCall read_aten_call(ObjectReader& reader);
Json to_json(const AtenCall& call);

/// Calls visit(argument) for each tensor in the arguments, in order.
template <class Visit>
void for_each_tensor(const AtenValue& value, const Visit& visit) {
  if (const auto* tensor = std::get_if<TensorArgument>(&value.value)) visit(*tensor);
  if (const auto* list = std::get_if<AtenList>(&value.value)) {
    for (const AtenValue& element : *list) for_each_tensor(element, visit);
  }
}

}  // namespace pp
