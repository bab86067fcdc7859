// A schedule by itself, without any profile: its programs under equal stages and given costs, checked,
// simulated, with its bounds. What `pp-plan simulate --schedule` prints.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "libplan/schedule/schedule.h"
#include "libplan/simulate/simulate.h"

namespace pp::plan {

/// Times of a worker's whole share for one micro-batch, in any unit; a stage of v on a worker takes 1/v.
/// `communication` is pure latency between two workers.
struct ShareCosts {
  double forward = 1;
  double input_gradient = 1;
  double weight_gradient = 1;
  std::optional<double> backward;   ///< unset: input_gradient + weight_gradient
  std::optional<double> recompute;  ///< unset: forward
  double communication = 0;
  double all_reduce = 0;
  double update = 0;
  double load = 0;
  double evict = 0;
  bool operator==(const ShareCosts&) const = default;
};

/// `F=1,I=1,W=1,comm=0`; keys F, I, W, B, R, AR, U, L, E, comm. Throws pp::Error (usage) that names the part.
ShareCosts parse_share_costs(std::string_view text);

struct ScheduleStudy {
  ScheduleRequest request;
  std::optional<ProgramSet> programs;  ///< written elsewhere: takes the place of request
  ShareCosts costs;
  RecomputeStart recompute_start = RecomputeStart::early;
  int stream_length = 0;  ///< micro-batches of an asynchronous schedule, frames of partime
  std::vector<int>
      in_flight_limits;  ///< checked, and searched within (auto-zb): one per worker, or one for all
};

struct ScheduleFigures {
  SimulationInput input;
  SimulationResult result;
  int chunks_per_worker = 1;
  std::vector<double> peak_in_flight;  ///< per worker, in whole shares
  /// Seconds per step of chained steps; asynchronous: per micro-batch. Nothing for token generation, whose
  /// steps depend on each other only within one prompt.
  std::optional<Seconds> steady_period;
  Seconds makespan_bound{};  ///< no order of these operations on these workers is shorter
  std::string search;        ///< auto-zb: where the order comes from
};

/// Throws pp::Error: usage for what the schedule refuses, data for programs that are not valid.
ScheduleFigures study_schedule(const ScheduleStudy& study);

}  // namespace pp::plan
