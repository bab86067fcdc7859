// A build without the runtime has no reader for its documents.
#include "libprofile/core/error.h"
#include "tests/lab/fuzz/runtime_documents.h"

namespace pp::fuzz {

std::string check_runtime_document(Random&, const std::filesystem::path&) {
  throw Error(ErrorKind::usage, "this build has no runtime");
}

}  // namespace pp::fuzz
