// The keys of a plan's `predicted`.
#pragma once

#include "libplan/plan.h"

namespace pp::plan {

/// Throws pp::Error (data) with the key.
Prediction read_prediction(ObjectReader& reader);
Json to_json(const Prediction& prediction);

}  // namespace pp::plan
