#include "libprofile/core/context_json.h"

namespace pp {

Context read_context(ObjectReader& document) {
  Context context;
  if (!document.has("context")) return context;
  document.object("context", [&](ObjectReader& member) {
    for (const std::string& key : member.keys()) context.emplace(key, member.text(key));
  });
  return context;
}

Json context_json(const Context& context) {
  Json json = Json::object();
  for (const auto& [key, value] : context) json[key] = value;
  return json;
}

}  // namespace pp
