// Golden documents: files under tests/data/core that a value must become byte for byte.
#pragma once

#include <string>

#include "libprofile/core/file.h"
#include "tests/support/places.h"

namespace pp::test {

inline std::string golden(const char* name) { return read_file(test_data("core/" + std::string(name))); }

}  // namespace pp::test
