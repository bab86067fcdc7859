#include "tests/support/places.h"

namespace pp::test {

// Only this file knows absolute paths: the others compile to the same objects in every checkout.
std::string repository(const std::string& path) { return PP_REPOSITORY "/" + path; }
std::string test_data(const std::string& path) { return repository("tests/data/" + path); }
std::string shared_data(const std::string& path) { return repository("../shared/data/" + path); }
std::string program(const std::string& name) { return name.empty() ? PP_BIN : PP_BIN "/" + name; }

}  // namespace pp::test
