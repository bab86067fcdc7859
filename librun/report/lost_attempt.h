// A start of a training that was lost, in the report and between the starts of pp-run launch. Keys of a member
// of pp.report's `lost_attempts`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "libprofile/core/json_reader.h"
#include "libprofile/core/units.h"

namespace pp::run {

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
