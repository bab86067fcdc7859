// From what workers and driver wrote down to the report: medians, fractions, predicted beside measured, and
// how a stream of frames went. Free of Torch.
#pragma once

#include <span>
#include <vector>

#include "librun/report/record.h"
#include "librun/report/report.h"

namespace pp::run {

/// One step (in streams a mini-batch) as the driver saw it; times count from the start of the run.
struct StepRecord {
  int range = 0;  ///< its steps follow each other: an epoch, in streams what lies between two drains
  double loss = 0;
  int samples = 0;
  Seconds end{};
  Seconds time{};  ///< since the end of the step before; 0 in streams where that one ended later
  double bubble_fraction = 0;
  bool skipped = false;  ///< not updated, because something was not finite
  double weight = 0;     ///< of its loss: samples, or labels that count
};

/// Median seconds per step. Programs: from the end of one step to the end of the next; the first step of a
/// range, which had no predecessor to overlap with, and the first `kWarmUpSteps` of the run are left out as
/// long as others remain. Streams: per range (E(2n/3) - E(n/3))/(n/3) with E(i) = latest end among the first
/// i of its n mini-batches, as the planner's steady period; the whole range's mean where n < 6.
Seconds step_time(std::span<const StepRecord> steps, bool streams);
inline constexpr int kWarmUpSteps = 3;

/// Which steps the step's time is the median of: those that follow another one of their range, behind the
/// warm-up; where there are none, all.
std::vector<std::size_t> steady_steps(std::span<const StepRecord> steps);

/// 1 - busy/(workers * time), within 0 and 1; 0 for no time.
double fraction_idle(Seconds busy, double workers, Seconds time);

/// Median samples of the steps that step_time() is the median of; streams: of all steps.
double step_samples(std::span<const StepRecord> steps, bool streams);

/// Fills step time, throughput, bubble, workers, op times, comparisons and last steps of `report`, whose plan
/// and number of steps are there. `steps`: the last ones.
void add_measurements(RunReport& report, std::span<const StepRecord> steps,
                      std::span<const WorkerRecord* const> workers);

/// Time of each kind of operation of each stage, beside what the plan says of it.
std::vector<OpTime> op_times(const plan::Plan& plan, std::span<const WorkerRecord* const> workers);

/// Chrome trace JSON of the recorded operations and messages, and of the operations of the report's last steps
/// as the plan predicts them, from the same time on.
std::string make_trace(std::span<const WorkerRecord* const> workers, const RunReport& report);

/// How frames went through `stages` stages, those whose first and last forward the records have; the period is
/// left to the caller.
FramesReport frames_report(std::span<const WorkerRecord* const> workers, int stages);

}  // namespace pp::run
