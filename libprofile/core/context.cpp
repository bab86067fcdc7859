#include "libprofile/core/context.h"

#include <nlohmann/json.hpp>

namespace pp {

Context read_context(ObjectReader& document) {
  Context context;
  if (!document.has("context")) return context;
  document.members("context", [&](const std::string& name, const Json& value, const std::string& pointer) {
    if (!value.is_string())
      throw Error(ErrorKind::data, pointer + ": must be a string, the context is free text");
    context.emplace(name, value.get<std::string>());
  });
  return context;
}

Json context_json(const Context& context) {
  Json json = Json::object();
  for (const auto& [key, value] : context) json[key] = value;
  return json;
}

}  // namespace pp
