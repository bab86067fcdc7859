// Two members of pp.report: curves over the run and the operations of the last steps. Internal to
// report_json.cpp.
#pragma once

#include "libprofile/core/json_reader.h"
#include "librun/report/history.h"
#include "librun/report/last_steps.h"

namespace pp::run {

/// A run may take 30 years.
inline constexpr NumberRange kTimes{0, 1e9};

Json to_json(const StepHistory& history);
Json to_json(const LastSteps& last);

/// Throw pp::Error (data). `workers`: of the plan.
StepHistory read_history(ObjectReader& reader, std::size_t workers);
LastSteps read_last_steps(ObjectReader& reader, const plan::Plan& plan);

/// A worker's number below their count.
WorkerId read_worker_id(ObjectReader& reader, std::string_view key, std::size_t workers);
StageId read_stage_id(ObjectReader& reader, std::string_view key, std::size_t stages);

}  // namespace pp::run
