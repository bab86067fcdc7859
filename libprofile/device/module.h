// Parts of a program that are loaded when somebody needs them: the shared libraries in the folder lib/ beside
// that of the running program. Torch-free.
#pragma once

#include <string>

namespace pp::profile {

/// Where `symbol` is in lib/`file`, which stays loaded from the first call on. Throws pp::Error (device) with
/// what the system says and what to do.
void* module_symbol(const std::string& file, const char* symbol);

}  // namespace pp::profile
