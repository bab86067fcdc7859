#include "apps/profile/model_argument.h"

#include <filesystem>
#include <system_error>

#include "apps/cli/output.h"
#include "libprofile/model/families/families.h"

namespace pp::profile_tool {

ModelGraph load_model(const std::string& model) {
  std::error_code ignored;
  if (model == "-" || model.ends_with(".json") || std::filesystem::exists(model, ignored))
    return cli::load(model, parse_model);
  return model::build_family(model);
}

}  // namespace pp::profile_tool
