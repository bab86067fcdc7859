// Sets of programs for tests: from a schedule's name or written out as text.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "libplan/schedule/schedule.h"
#include "libplan/schedule/validate.h"
#include "libprofile/core/index.h"
#include "tests/libprofile/core/error_text.h"

namespace pp::plan::test {

/// One stage per worker.
inline ProgramSet straight(const std::string& name, int stages, int micro_batches,
                           WindowRule window = WindowRule::win) {
  return program_set({name, std::vector<int>(at(stages), 1), micro_batches, window, {}});
}

/// `placement[s]`: the workers of stage s.
inline ProgramSet written(const std::vector<std::string>& programs,
                          const std::vector<std::vector<int>>& placement, int micro_batches) {
  ProgramSet set;
  set.micro_batches = micro_batches;
  for (const std::string& text : programs) set.workers.push_back(parse_program(text));
  for (const auto& workers : placement) {
    auto& stage = set.stage_workers.emplace_back();
    for (const int worker : workers) stage.push_back(WorkerId{worker});
  }
  return set;
}

using pp::test::error_of;

}  // namespace pp::plan::test
