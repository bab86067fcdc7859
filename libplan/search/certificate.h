// What a search promises about its best plan.
#pragma once

#include "libplan/search/best_first.h"

namespace pp::plan {

/// Of the first of `ranked`. Throws pp::Error (internal) when the bound is above its step: then the bound is
/// wrong.
Certificate certify(const SearchOutcome& outcome);

}  // namespace pp::plan
