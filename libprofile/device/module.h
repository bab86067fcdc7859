// Parts of a program that are loaded when somebody needs them: the shared libraries in the folder lib/pp/
// beside that of the running program. Torch-free.
#pragma once

#include <string>

#include "libprofile/device/libtorch_place.h"

namespace pp::profile {

/// Where `symbol` is in lib/pp/`file`, which stays loaded from the first call on. LibTorch is that of
/// PP_LIBTORCH, else where the module was told to look, else what is found (libtorch_place.h). Throws pp::Error
/// (device) with what the system says and what to do.
void* module_symbol(const std::string& file, const char* symbol, LibTorchPart part);

}  // namespace pp::profile
