// Where LibTorch is on this machine, for a half that computes which was built against it somewhere else.
#pragma once

namespace pp {

/// Loads the libraries of the torch/ folder that PP_LIBTORCH names, so that modules loaded later use them; does
/// nothing where it is unset. Throws pp::Error (device) when the folder has none.
void load_named_libtorch();

/// The same for the first that there is of: what scripts/setup unpacked (PP_CACHE/torch-2.11.0/torch, PP_CACHE
/// being ${XDG_CACHE_HOME:-~/.cache}/pp unless set), and the torch package of python3. False: there is none.
/// Starts python3, so tens of milliseconds.
bool load_found_libtorch();

}  // namespace pp
