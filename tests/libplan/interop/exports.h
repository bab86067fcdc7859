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

/// Without the pointer to the page of limits, with which what a trainer cannot hold is refused.
template <class Export>
std::string refusal(Export&& exported) {
  std::string text = pp::test::error_of(exported, ErrorKind::data);
  if (text.ends_with(detail::kLimits)) text.resize(text.size() - detail::kLimits.size());
  return text;
}

}  // namespace pp::plan::test
