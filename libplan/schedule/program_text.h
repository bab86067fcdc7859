// Schedules in PyTorch's exchange form: one row per worker, one cell per operation, `0F0` = stage 0, forward,
// micro-batch 0 (kinds F, B, I, W; R is ours). Empty cells are idle clock ticks and mean nothing here. AR and U
// are not written: a synchronous step ends with them.
#pragma once

#include <string>
#include <string_view>

#include "libplan/schedule/program_set.h"

namespace pp::plan {

/// One row per worker, without AR, U and swaps.
std::string to_csv(const ProgramSet& set);

/// A synchronous set of the rows: a stage is held by the workers whose rows name it, and every row ends with
/// the AR and U of its stages. Not validated. Throws pp::Error (data) with row, cell and text: `row 1, cell 4,
/// "1G2": ...`; for rows without operations and for stages that no row names.
ProgramSet parse_csv(std::string_view text);

}  // namespace pp::plan
