// What only the runtime reads: reports, checkpoints, files of data, safetensors.
#pragma once

#include <filesystem>
#include <string>

#include "tests/lab/fuzz/random.h"

namespace pp::fuzz {

/// Writes one of them, changed, into the folder and reads it. Throws pp::Error when it is refused; returns what
/// is wrong.
std::string check_runtime_document(Random& random, const std::filesystem::path& folder);

}  // namespace pp::fuzz
