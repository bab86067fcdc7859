// What exports wrote, or why they did not.
#pragma once

#include <string>

#include "libplan/interop/trainer_export.h"
#include "libprofile/core/error.h"
#include "tests/libprofile/core/error_text.h"
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
  return pp::test::error_of(exported, ErrorKind::data);
}

}  // namespace pp::plan::test
