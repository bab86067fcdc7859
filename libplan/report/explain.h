// Why a plan is what it is, for people who did not make it: what decides its step, how sure that is, why the
// runner-up lost and what would help. Every claim about another plan comes from planning it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "libplan/report/calibration.h"
#include "libplan/report/throughput.h"
#include "libplan/report/what_if.h"
#include "libplan/search/planner.h"

namespace pp::plan {

/// What a faster plan would need.
enum class Limit { compute, links, bubble, memory };

}  // namespace pp::plan

namespace pp {
template <>
struct EnumNames<plan::Limit> {
  static constexpr std::array table{
      std::pair{plan::Limit::compute, "compute"sv}, std::pair{plan::Limit::links, "links"sv},
      std::pair{plan::Limit::bubble, "bubble"sv}, std::pair{plan::Limit::memory, "memory"sv}};
};
}  // namespace pp

namespace pp::plan {

/// The first alternative that differs by more than the schedule: with other stages, replicas or micro-batches.
struct RunnerUp {
  Alternative alternative;
  std::optional<StepParts> parts;  ///< nothing when the request cannot ask for this plan alone
  bool operator==(const RunnerUp&) const = default;
};

/// What a level of the cluster says of messages beyond latency and bandwidth.
struct LevelMessages {
  std::string level;
  Link link;
  bool operator==(const LevelMessages&) const = default;
};

struct Explanation {
  std::string plan;  ///< plan_summary()
  Seconds step{};
  std::vector<int> windows;    ///< windows_of(); empty for schedules without
  std::vector<int> classic;    ///< classic_windows()
  std::vector<Load> loads;     ///< loads_of()
  std::size_t bottleneck = 0;  ///< the largest of the loads; the first of equals
  StepParts parts;
  Limit limit = Limit::compute;  ///< memory when the plan is slower for want of it, else the largest part
  std::optional<Seconds> step_without_memory_limit;
  bool memory_left_out = false;  ///< the observer of the request stopped the search for that step
  Certificate certificate;
  std::optional<RunnerUp> runner_up;  ///< nothing: no such alternative is listed
  std::optional<DataParallelism> data_parallel;
  std::optional<double> spread;  ///< recorded_spread() at the plan's micro-batch size
  int micro_batches = 1;
  int depth = 1;                         ///< stages one after the other, on different workers
  bool synchronous = true;               ///< the pipeline fills and drains in every step
  std::vector<RunFactors> calibration;   ///< what corrected the profile; not set by explain()
  std::vector<Machine> machines;         ///< Plan::machines
  std::optional<Seconds> expected_step;  ///< Prediction::expected_step
  std::vector<LevelMessages> messages;   ///< of levels where these are not the defaults
  double all_reduce_overlap = 0;
  bool overlap_given = false;  ///< by the request; else measured, unless it is 0
  std::vector<WhatIf> changes;
  bool operator==(const Explanation&) const = default;
};

/// Half the distance from the 16th to the 84th percentile of the layers' times, summed and divided by the sum
/// of the medians: what the sum is off by when all layers deviate alike. At the largest profiled size up to
/// `micro_batch_size`, else the smallest. Nothing for imported times, which have no spread.
std::optional<double> recorded_spread(const Profile& profile, int micro_batch_size);

/// `plan` is what make_plan() made of the rest. Costs about seven times as much as that; what the
/// request's observer leaves no time for is left out, and said to be. The same input gives the
/// same answer. Throws what make_plan() throws.
Explanation explain(const Plan& plan, const Profile& profile, const Cluster& cluster,
                    const PlanRequest& request);

/// Sentences and figures, one statement a line.
std::string to_text(const Explanation& explanation);
/// The figures; times in seconds under keys that end in `_s`.
Json to_json(const Explanation& explanation);

}  // namespace pp::plan
