// Files of training data in every format that pp-run reads.
#pragma once

#include <filesystem>
#include <string>

#include "tests/lab/fuzz/random.h"

namespace pp::fuzz {

/// As check_runtime_document.
std::string check_data_files(Random& random, const std::filesystem::path& folder);

}  // namespace pp::fuzz
