// What a layer of the model says about its operation beside the inputs.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace pp {

using Attribute = std::variant<bool, std::int64_t, double, std::string, std::vector<std::int64_t>>;
/// Complete after validation: every attribute of the op, defaults filled in.
using Attributes = std::map<std::string, Attribute, std::less<>>;

/// Of complete attributes. Throw pp::Error (internal) when the op has no such attribute of this type.
std::int64_t integer(const Attributes& attributes, std::string_view name);
double number(const Attributes& attributes, std::string_view name);
bool boolean(const Attributes& attributes, std::string_view name);
const std::string& text(const Attributes& attributes, std::string_view name);
const std::vector<std::int64_t>& integers(const Attributes& attributes, std::string_view name);

}  // namespace pp
