// Golden documents: files under tests/data/core that a value must become byte for byte.
#pragma once

#include <string>

#include "libprofile/core/file.h"

namespace pp::test {

inline std::string golden(const char* name) { return read_file(std::string(PP_TEST_DATA "/core/") + name); }

}  // namespace pp::test
