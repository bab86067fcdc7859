// Where LibTorch is on this machine, for modules that were built against it somewhere else. Torch-free.
#pragma once

#include <string>

namespace pp::profile {

/// CUDA's libraries take time and memory to load: only where they are asked for.
enum class LibTorchPart { cpu, cuda };

/// Loads the libraries of the torch/ folder that PP_LIBTORCH names, so that modules loaded later use them; does
/// nothing where it is unset. Throws pp::Error (device) when the folder has none.
void load_named_libtorch(LibTorchPart part);

/// The same for the first that there is of: what scripts/setup unpacked (PP_CACHE/torch-2.11.0/torch, PP_CACHE
/// being ${XDG_CACHE_HOME:-~/.cache}/pp unless set), and the torch package of python3. False: there is none.
/// Starts python3, so tens of milliseconds.
bool load_found_libtorch(LibTorchPart part);

/// What a message says to do about a LibTorch that is missing.
std::string libtorch_remedy();

}  // namespace pp::profile
