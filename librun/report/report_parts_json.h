// Members of pp.report that are written and read apart from the others: curves over the run, the operations
// of the last steps, and `lost_attempts`, which pass between the starts of pp-run launch, too.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "libprofile/core/json_reader.h"
#include "libprofile/core/units.h"
#include "librun/report/last_steps.h"
#include "librun/report/record.h"

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

/// What it was, and what it leaves to the next one (pp-run train or launch with --keep-going).
struct LostAttempt {
  std::string how;                         ///< `signal 9 (Killed)`, `exit code 1`; of one that was stopped, why
  std::int64_t first_step = 0;             ///< updates that it began with
  std::int64_t steps_done = 0;             ///< updates when it was lost, since the beginning of the training
  std::optional<std::int64_t> checkpoint;  ///< of the newest then; none: the next one begins anew
  Seconds time{};                          ///< from its start to its end
  std::string plan = {};                   ///< in a line, with its hash; empty: that of the report
  std::string hosts = {};                  ///< that it ran on; empty: it was not launched
  std::optional<Seconds> to_next = std::nullopt;  ///< from its end to the next start
  bool operator==(const LostAttempt&) const = default;
};

Json to_json(const LostAttempt& lost);
/// Throws pp::Error (data).
LostAttempt read_lost_attempt(ObjectReader& reader);

}  // namespace pp::run
