// The text of launch.py, which stands beside this file and is put into the library when it is built.
#pragma once

#include <string_view>

namespace pp::plan {

extern const std::string_view kTorchLauncher;

}  // namespace pp::plan
