// valid-documents FOLDER FILE: what the schemas have against the documents below FOLDER that were written after
// FILE.
#include <cstdio>
#include <exception>

#include "tests/support/schema.h"

int main(int argc, char** argv) try {
  if (argc != 3) return 2;
  const pp::test::DocumentsOf documents(argv[1], std::filesystem::last_write_time(argv[2]));
  const std::string wrong = documents.invalid();
  if (!wrong.empty()) std::printf("not valid: %s\n", wrong.c_str());
  return wrong.empty() ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "valid-documents: %s\n", error.what());
  return 2;
}
