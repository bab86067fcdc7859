// Attributes that are one of several words.
#pragma once

#include <array>
#include <string_view>
#include <utility>

#include "libprofile/core/enum_names.h"
#include "libprofile/core/ops/attributes.h"

namespace pp {

/// What a gated_activation does to its gate.
enum class GateActivation { silu, gelu, gelu_tanh, relu };
/// What happens to the frequencies of rotary positions.
enum class RotaryScaling { none, linear, llama3, yarn };
/// Of queries, keys and values in one tensor: all queries first, or head by head.
enum class HeadPacking { parts, heads };

template <>
struct EnumNames<GateActivation> {
  static constexpr std::array table{std::pair{GateActivation::silu, std::string_view("silu")},
                                    std::pair{GateActivation::gelu, std::string_view("gelu")},
                                    std::pair{GateActivation::gelu_tanh, std::string_view("gelu_tanh")},
                                    std::pair{GateActivation::relu, std::string_view("relu")}};
};
template <>
struct EnumNames<RotaryScaling> {
  static constexpr std::array table{std::pair{RotaryScaling::none, std::string_view("none")},
                                    std::pair{RotaryScaling::linear, std::string_view("linear")},
                                    std::pair{RotaryScaling::llama3, std::string_view("llama3")},
                                    std::pair{RotaryScaling::yarn, std::string_view("yarn")}};
};
template <>
struct EnumNames<HeadPacking> {
  static constexpr std::array table{std::pair{HeadPacking::parts, std::string_view("parts")},
                                    std::pair{HeadPacking::heads, std::string_view("heads")}};
};

/// Of complete attributes.
template <NamedEnum E>
E choice(const Attributes& attributes, std::string_view name) {
  return *find_enum<E>(text(attributes, name));
}

}  // namespace pp
