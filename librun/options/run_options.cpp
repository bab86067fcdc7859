#include "librun/options/run_options.h"

namespace pp::run {

Settings settings_of(const ExecutionOptions& options) {
  Settings settings{{"data", options.data}};
  const auto text = [&](const char* name, const std::string& value) {
    if (!value.empty()) settings[name] = value;
  };
  text("data_format", options.data_format);
  text("token_type", options.token_type);
  text("target_column", options.target_column);
  if (options.data == "synthetic") settings["synthetic_samples"] = std::int64_t{options.synthetic_samples};
  if (options.synthetic_drift > 0) settings["synthetic_drift"] = options.synthetic_drift;
  if (options.scale) settings["scale"] = *options.scale;
  if (options.autocast) settings["autocast"] = std::string(name_of(*options.autocast));
  if (options.memory_limit) settings["memory_limit_bytes"] = options.memory_limit->value;
  return settings;
}

}  // namespace pp::run
