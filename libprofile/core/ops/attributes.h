// What a layer of the model says about its operation beside the inputs, and the words that some attributes
// are one of.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "libprofile/core/enum_names.h"

namespace pp {

using Attribute = std::variant<bool, std::int64_t, double, std::string, std::vector<std::int64_t>>;
/// Complete after validation: every attribute of the op, defaults filled in.
using Attributes = std::map<std::string, Attribute, std::less<>>;

/// Takes complete attributes. Throw pp::Error (internal) when the op has no such attribute of this type.
std::int64_t integer(const Attributes& attributes, std::string_view name);
double number(const Attributes& attributes, std::string_view name);
bool boolean(const Attributes& attributes, std::string_view name);
const std::string& text(const Attributes& attributes, std::string_view name);
const std::vector<std::int64_t>& integers(const Attributes& attributes, std::string_view name);

/// What a gated_activation does to its gate.
enum class GateActivation { silu, gelu, gelu_tanh, relu };
/// What happens to the frequencies of rotary positions.
enum class RotaryScaling { none, linear, llama3, yarn };
/// Where queries, keys and values are. Of one tensor all queries first, or head by head. `latent`: three, of
/// which the second has keys and values head by head, and the third what all keys end with.
enum class HeadPacking { parts, heads, latent };

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
                                    std::pair{HeadPacking::heads, std::string_view("heads")},
                                    std::pair{HeadPacking::latent, std::string_view("latent")}};
};

/// Takes complete attributes.
template <NamedEnum E>
E choice(const Attributes& attributes, std::string_view name) {
  return *find_enum<E>(text(attributes, name));
}

}  // namespace pp
