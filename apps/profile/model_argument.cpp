#include "apps/profile/model_argument.h"

#include <filesystem>

#include "apps/cli/output.h"
#include "libprofile/model/families/families.h"

namespace pp::profile_tool {

ModelGraph load_model(const std::string& model) {
  if (model == "-" || model.ends_with(".json") || std::filesystem::exists(model))
    return cli::load(model, parse_model);
  return model::build_family(model);
}

}  // namespace pp::profile_tool
