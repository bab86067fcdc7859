// The golden values for schedules (tests/data/schedules) by name.
#pragma once

#include <string>

#include "tests/libplan/schedule/support.h"
#include "tests/support/test_data.h"

namespace pp::plan::test {

/// Throws std::out_of_range without it.
inline nlohmann::json golden_case(const std::string& group, const std::string& name) {
  for (const nlohmann::json& entry : pp::test::golden(group)) {
    if (entry.at("name") == name) return entry;
  }
  throw std::out_of_range("no golden case " + name);
}

/// The golden lists leave AR and U out.
inline std::string without_updates(const Program& program) {
  Program rest;
  for (const Op& op : program) {
    if (has_micro_batch(op.kind)) rest.push_back(op);
  }
  return to_text(rest);
}

}  // namespace pp::plan::test
