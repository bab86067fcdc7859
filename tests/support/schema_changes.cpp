// Documents changed in one place, for their schema and their reader.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "libprofile/core/error.h"
#include "tests/support/schema.h"

namespace pp::test {
namespace {

using Pointer = Json::json_pointer;

/// place(pointer) for every value below this one.
void each_place(const Json& json, const Pointer& at, const std::function<void(const Pointer&)>& place) {
  place(at);
  if (json.is_object()) {
    for (const auto& [key, member] : json.items()) each_place(member, at / key, place);
  }
  if (json.is_array()) {
    for (std::size_t i = 0; i < json.size(); ++i) each_place(json[i], at / i, place);
  }
}

bool same_type(const Json& one, const Json& other) {
  return one.type() == other.type() || (one.is_number_integer() && other.is_number_integer());
}

}  // namespace

Disagreement disagreement(const SchemaError& schema, const Json& json,
                          const std::function<void(const Json&)>& read, const std::vector<std::string>& apart) {
  const std::array others{Json(), Json("text"), Json(-1.5), Json(0), Json(true), Json::array(), Json::object()};
  Disagreement found;
  const auto compare = [&](const Json& changed, const std::string& what) {
    bool is_read = true;
    try {
      read(changed);
    } catch (const Error&) {
      is_read = false;
    }
    if (is_read == schema(changed).empty()) return;
    (is_read ? found.too_strict : found.too_loose) += what + "; ";
  };
  each_place(json, Pointer(), [&](const Pointer& at) {
    if (at.empty()) return;
    Pointer top = at;
    while (!top.parent_pointer().empty()) top = top.parent_pointer();
    if (std::ranges::count(apart, top.back()) > 0) return;
    const Json& value = json.at(at);
    Json changed = json;
    if (json.at(at.parent_pointer()).is_object()) {
      changed.at(at.parent_pointer()).erase(at.back());
      compare(changed, at.to_string() + " without");
      changed = json;
    }
    for (const Json& other : others) {
      if (same_type(other, value)) continue;
      changed.at(at) = other;
      compare(changed, at.to_string() + " " + other.dump());
    }
    if (!value.is_object()) return;
    changed.at(at) = value;
    changed.at(at)["one_more"] = 1;
    compare(changed, at.to_string() + " one more");
  });
  Json more = json;
  more["one_more"] = 1;
  compare(more, "one more");
  return found;
}

}  // namespace pp::test
