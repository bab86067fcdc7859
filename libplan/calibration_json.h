// The member `calibration` of pp.plan.
#pragma once

#include "libplan/plan.h"
#include "libprofile/core/json_reader.h"

namespace pp::plan {

/// Throws pp::Error (data).
Calibration read_calibration(ObjectReader& reader);
Json to_json(const Calibration& calibration);

}  // namespace pp::plan
