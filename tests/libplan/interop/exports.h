// What exports wrote, or why they did not.
#pragma once

#include <string>

#include "libplan/interop/trainer_export.h"
#include "libprofile/core/error.h"
#include "tests/support/doctest.h"

namespace pp::plan::test {

inline std::string file(const TrainerExport& out, const std::string& name) {
  for (const ExportedFile& f : out.files)
    if (f.name == name) return f.content;
  FAIL("no file ", name);
  return {};
}

template <class Export>
std::string refusal(Export&& exported) {
  try {
    exported();
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::data);
    return error.what();
  }
  return "accepted";
}

}  // namespace pp::plan::test
