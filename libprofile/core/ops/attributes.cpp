#include "libprofile/core/ops/attributes.h"

#include "libprofile/core/error.h"

namespace pp {

namespace {

template <class T>
const T& get(const Attributes& attributes, std::string_view name) {
  const auto found = attributes.find(name);
  const T* value = found == attributes.end() ? nullptr : std::get_if<T>(&found->second);
  if (value == nullptr)
    throw Error(ErrorKind::internal, "no attribute \"" + std::string(name) + "\" of the type asked for");
  return *value;
}

}  // namespace

std::int64_t integer(const Attributes& attributes, std::string_view name) {
  return get<std::int64_t>(attributes, name);
}
double number(const Attributes& attributes, std::string_view name) { return get<double>(attributes, name); }
bool boolean(const Attributes& attributes, std::string_view name) { return get<bool>(attributes, name); }
const std::string& text(const Attributes& attributes, std::string_view name) {
  return get<std::string>(attributes, name);
}

const std::vector<std::int64_t>& integers(const Attributes& attributes, std::string_view name) {
  return get<std::vector<std::int64_t>>(attributes, name);
}

}  // namespace pp
