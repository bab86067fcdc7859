// A case of stages that the planner places, while it is open.
#pragma once

#include <vector>

#include "libplan/search/candidates/open_case.h"
#include "libplan/search/exact/bottleneck.h"

namespace pp::plan {

/// Stages that the planner places, under every schedule that has the same searches.
class ChainCase : public OpenCase {
 public:
  ChainCase(MachinePart& part, PlanCase one);
  void add(const ScheduleRow& schedule) { schedules_.push_back(&schedule); }

  bool refine(double best) override;
  std::vector<Finalist> next(const Worth& worth) override;
  std::vector<Finalist> quick(Quick how, const StopSign& stop) override;

 private:
  enum class Refined { no, in_part, fully };
  enum class Looked { no, at_points, everywhere };
  void refine_fully(double best);
  /// What no layer order of the whole machine undercuts, if that is below `enough`.
  void prove_any_order(double enough);
  MachinePart::Alike alike(bool listed, bool in_every_order) const;
  /// The largest objective that is worth a search, on a list of the devices or not; `worth`: the same of a
  /// plan.
  double below(double worth, bool listed) const;
  void include(double objective, bool listed);
  /// Under each schedule, on the devices that the request's placement gives it.
  void add(std::vector<Finalist>& found, const Candidate& candidate, std::vector<int> devices) const;
  std::vector<Finalist> finalists(const std::vector<Candidate>& candidates) const;

  MachinePart& part_;
  const PlanCase one_;
  const StageMemory memory_;
  const SearchCase what_;
  Costs costs_;
  std::vector<const ScheduleRow*> schedules_;
  BottleneckResult least_;
  Refined refined_ = Refined::no;
  Looked looked_ = Looked::no;
};

}  // namespace pp::plan
