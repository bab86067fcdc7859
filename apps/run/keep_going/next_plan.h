// Which plan a launched training goes on with, on the hosts that are there; and what passes between `pp-run
// launch --keep-going` and the ranks that it starts: files in a folder that all see, so that launcher and
// ranks may stand on different hosts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "apps/run/hosts.h"
#include "libplan/plan/plan.h"
#include "libprofile/core/profile.h"
#include "librun/report/report.h"

namespace pp::run_tool {

/// What a training says of its devices.
struct ToldSpeeds {
  std::vector<double> factors;  ///< of each worker's: its work takes so many times as long as promised
  std::int64_t steps = 0;       ///< of the whole training
};

/// The launcher's side.
class LaunchState {
 public:
  /// Makes the folder. Throws pp::Error (usage) where it cannot be written.
  explicit LaunchState(std::filesystem::path folder);

  const std::filesystem::path& folder() const { return folder_; }
  /// Before a start, which goes on from `first_step`. `earlier`: those before it, lost or stopped.
  void begin(std::int64_t first_step, const std::vector<run::LostAttempt>& earlier) const;
  /// Updates since the beginning of the training.
  std::int64_t step() const;
  /// A rank has failed, so that the launcher should soon end.
  bool failed() const;
  /// Why, in the words of the first one.
  std::string reason() const;
  /// The training has come to its end, whatever becomes of its results.
  bool ended() const;
  /// The last word on the devices of this start; nothing: they are as promised.
  std::optional<ToldSpeeds> speeds() const;

 private:
  std::filesystem::path folder_;
};

/// A rank's side; writes nothing that is worth an error: the launcher then knows less.
class LaunchedRank {
 public:
  explicit LaunchedRank(std::filesystem::path folder);
  ~LaunchedRank();
  LaunchedRank(const LaunchedRank&) = delete;
  LaunchedRank& operator=(const LaunchedRank&) = delete;

  /// Called by the first rank alone.
  void step(std::int64_t step) const;
  void failed(const std::string& reason) const;
  void ended() const;
  /// Called by the first rank alone.
  void speeds(const ToldSpeeds& speeds) const;
  /// Throws pp::Error (data).
  std::vector<run::LostAttempt> earlier() const;

 private:
  std::filesystem::path folder_;
  int step_ = -1;  ///< descriptor
};

/// A plan with its file, which all hosts can read.
struct PlacedPlan {
  plan::Plan plan;
  std::string file;
  int ranks = 1;                  ///< that it was placed on when it was chosen
  std::vector<int> devices = {};  ///< positions of its devices among those of the first plan; empty: it is that
};

/// Throws as place_ranks().
int ranks_on(const plan::Plan& plan, const std::vector<Host>& hosts);
/// The same.
PlacedPlan placed(plan::Plan plan, const std::string& file, const std::vector<Host>& hosts);

/// Whether the hosts have room for it, on as many ranks as before.
bool fits(const PlacedPlan& plan, const std::vector<Host>& hosts);

struct Replanning {
  PlacedPlan first;                               ///< that the job was launched with
  std::optional<Profile> profile = std::nullopt;  ///< of which it was made; none: nothing can be planned anew
  int spare = 0;                                  ///< hosts that new plans leave idle
  /// Of the first plan's devices, as they were measured since; empty: as that plan has them.
  std::vector<double> speeds = {};
};

/// The best plan for the first one's devices at these positions, at their speeds (plan_again()). Throws
/// pp::Error (usage) where no such request can be answered.
std::variant<plan::Plan, plan::Infeasible> plan_for(const Replanning& job, const std::vector<int>& positions);

/// The first plan where it fits; `current` where that does; else the best one for what is left (plan_for()),
/// without a file. Where speeds were measured the first plan is for another machine. `gone`: devices_left().
/// Infeasible: there is none, also for want of a profile. Throws
/// pp::Error (usage) where no such request can be answered.
std::variant<PlacedPlan, plan::Infeasible> next_plan(const Replanning& job, const PlacedPlan& current,
                                                     const std::vector<Host>& hosts, int gone);

/// The first plan where it fits, else the best one for these hosts. As next_plan().
std::variant<PlacedPlan, plan::Infeasible> larger_plan(const Replanning& job, const std::vector<Host>& hosts,
                                                       int gone);

/// `1f1b, layers per stage 2|3, replicas 1-1, 16 samples in 4 micro-batches`
std::string plan_line(const plan::Plan& plan);

/// What a new plan promises in place of steps of `before` (0: not known): step time, the largest peak, and what
/// becomes of the bits of `old`.
std::string promise_line(const plan::Plan& plan, const plan::Plan& old, Seconds before);

}  // namespace pp::run_tool
