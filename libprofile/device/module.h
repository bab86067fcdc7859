// Parts of a program that are loaded when they are needed: the shared libraries in the folder lib/pp/
// beside that of the running program. Torch-free.
#pragma once

#include <filesystem>
#include <string>

namespace pp::profile {

/// Where `symbol` is in lib/pp/`file`, which stays loaded from the first call on. Throws pp::Error (device)
/// with what the system says and what to do.
void* module_symbol(const std::string& file, const char* symbol);

/// The library stays loaded: modules that ask for one of its name get it. Throws as module_symbol().
void load_library(const std::filesystem::path& path);

/// CUDA's half of LibTorch, from the folder of the half that is loaded already: a module that was built
/// elsewhere does not know where that is. Does nothing where the folder has none. Throws as module_symbol().
void load_cuda_libraries();

/// What a message says to do about a LibTorch that is missing.
std::string libtorch_remedy();

}  // namespace pp::profile
