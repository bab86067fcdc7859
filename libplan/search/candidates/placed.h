// Planning with schedules that say themselves which worker holds which stage, one worker per stage or copy:
// zero-bubble kinds, several stages per worker, two copies, programs from a file. The flat search cuts the
// layers into as many stages as the schedule has, as if each had a device of its own; the schedule places them,
// the simulator prices them, boundary layers move while the step gets faster.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "libplan/search/candidates/open_case.h"
#include "libplan/search/candidates/placed_floor.h"
#include "libplan/search/exact/bottleneck.h"

namespace pp::plan {

/// The schedule of one pipeline of those on `devices` workers; for as many as the request fixes (--stages,
/// --cuts, programs) when these are no more. Nothing when the request fixes another number. Of auto-zb the
/// placement alone: its programs follow the costs. Throws pp::Error (usage) what the schedule refuses.
std::optional<Schedule> placed_schedule(const PlanRequest& request, const ScheduleRow& row, int micro_batches,
                                        int devices);

/// What a schedule leaves open besides its stages.
struct PlacedVariant {
  int chunks = 0;  ///< per worker; 0: the schedule's own
  bool prefetch = false;
  int pipelines = 1;  ///< side by side
};
/// Each number of pipelines and, in the first layer order, of stages per worker; of swapped weights with and
/// without loading ahead.
std::vector<PlacedVariant> placed_variants(const PlanCase& one, const PlanRequest& request, bool first_order);

/// Seconds of compute of all micro-batches at the least.
double all_work(const PlanCase& one);
/// All the work shared evenly by the devices of the case: no plan on them is faster. Seconds per
/// step.
double shared_work(const PlanCase& one);

/// One variant, on exactly the devices of the case. Its bound: all workers share all the work, and in a fixed
/// order each stage has a trip to it, its micro-batches and the trip back.
class PlacedCase : public OpenCase {
 public:
  PlacedCase(MachinePart& part, std::shared_ptr<const PlanCase> one, const PlacedVariant& variant);

  std::vector<const ScheduleRow*> schedules() const override { return {&one_->schedule}; }
  bool refine(double best) override;
  bool has_next() const override { return !looked_ || refuted_; }
  bool misjudges() const override { return looked_ || attempt_; }
  /// One finalist with all partitions to start from.
  std::vector<Finalist> next(const Worth& worth) override;

 private:
  void make_stages();
  void add_even_stages(Costs& costs, std::vector<Candidate>& candidates);

  MachinePart& part_;
  const std::shared_ptr<const PlanCase> one_;
  const PlacedVariant variant_;
  std::shared_ptr<const Schedule> schedule_;
  SearchSpace space_{};  ///< of exactly its stages, one replica each
  std::optional<PlacedFloor> floor_;
  BottleneckResult least_{{}, 0, 0};
  bool refined_ = false, refuted_ = false, looked_ = false;
  bool attempt_ = false;  ///< nothing fits by its floor, and a simulation says what is short
};

}  // namespace pp::plan
