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
  std::vector<const ScheduleRow*> schedules() const override { return schedules_; }

  bool refine(double best) override;
  bool can_prove() const override;
  /// By what no layer order of the whole machine undercuts.
  void prove(double enough) override;
  bool has_next() const override { return looked_ != Looked::everywhere; }
  bool misjudges() const override { return looked_ == Looked::at_points; }
  std::vector<Finalist> next(const Worth& worth) override;
  std::vector<Finalist> quick(Quick how, const StopSign& stop) override;

 private:
  enum class Refined { no, in_part, fully };
  enum class Looked { no, without_lists, at_points, everywhere };
  void refine_fully(double best);
  MachinePart::Alike alike(bool listed, bool in_every_order) const;
  /// The largest objective that is worth a search, on a list of the devices or not; `worth`: the same of a
  /// plan.
  double below(double worth, bool listed) const;
  void include(double objective, bool listed);
  std::vector<Finalist> without_lists(const Worth& worth);
  std::vector<Finalist> on_list(std::size_t list, const SearchSpace& space, const Worth& worth);
  std::vector<Finalist> misjudged(const Worth& worth);
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
  std::vector<SearchSpace> listed_{};   ///< what is searched on each list
  std::size_t turn_ = 0;                ///< lists that were, in all spaces
  std::vector<double> least_listed_{};  ///< objective on each list
  double most_listed_ = 0;              ///< objective that is worth a search on any of them
  bool found_ = false;                  ///< a partition
};

}  // namespace pp::plan
