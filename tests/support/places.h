// Where the repository's files and the built programs are.
#pragma once

#include <string>

namespace pp::test {

/// A file or folder of the repository, from its root: `configs/data/digits`.
std::string repository(const std::string& path);

/// A file or folder of tests/data.
std::string test_data(const std::string& path);

/// A file or folder of the data that carry no licence notice; it may not be there.
std::string shared_data(const std::string& path);

/// A program of this build, `pp-plan`; without a name, the folder of all.
std::string program(const std::string& name = "");

}  // namespace pp::test
