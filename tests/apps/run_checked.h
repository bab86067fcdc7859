// Runs a tool and asks the schemas of the documents that it writes.
#pragma once

#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/process.h"
#include "tests/support/schema.h"

namespace pp::test {

/// run_program(); throws std::logic_error where a document that it has written into `folder` is not valid.
inline Outcome run_checked(const std::filesystem::path& program, const std::vector<std::string>& arguments,
                           const std::filesystem::path& folder, const Circumstances& circumstances = {}) {
  const DocumentsOf documents(folder);
  Outcome outcome = run_program(program, arguments, folder, circumstances);
  if (const std::string wrong = documents.invalid(); !wrong.empty()) throw std::logic_error(wrong);
  return outcome;
}

}  // namespace pp::test
