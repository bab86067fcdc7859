// MODEL on the command line: a model.json, a config.json of Hugging Face, or a built-in family with arguments;
// and --trainer.
#pragma once

#include <optional>
#include <string>

#include "libprofile/core/model/model_graph.h"
#include "libprofile/core/profile.h"
#include "libprofile/core/trainer.h"

namespace pp::profile_tool {

/// What the tool says of MODEL.
inline constexpr auto kModelHelp =
    "a model.json, a config.json of Hugging Face (config.json:sequence=512,layers=4,mtp=1), or a built-in "
    "family: `pp-profile models` lists them";

/// A text that ends in `.json` or names an existing file is read; of a folder its config.json; anything else is
/// a family. A config.json takes arguments as a family does: `config.json:sequence=512,layers=4`. Throws
/// pp::Error.
ModelGraph load_model(const std::string& model);

/// The type of weights that a config.json names, bfloat16 for float16; nothing for others, and for what comes
/// by stdin. Throws pp::Error.
std::optional<DType> declared_type(const std::string& model);

/// A shipped trainer's name or a file; where none is typed pp-run of a GPU, and of a CPU none, whose figures
/// hold the cost of its program already. Throws pp::Error.
TrainerSpec load_trainer(const std::string& typed, DeviceKind device);

}  // namespace pp::profile_tool
