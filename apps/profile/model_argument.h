// MODEL on the command line: a model.json file or a built-in family with arguments.
#pragma once

#include <string>

#include "libprofile/core/model/model_graph.h"

namespace pp::profile_tool {

/// A text that ends in `.json` or names an existing file is read, anything else is a family. Throws pp::Error.
ModelGraph load_model(const std::string& model);

}  // namespace pp::profile_tool
