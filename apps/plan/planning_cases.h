// The profiles of a request, each with the machine that its own devices make, and the time that a search may
// take.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "apps/cli/progress.h"
#include "apps/plan/planning_options.h"
#include "libplan/report/calibration.h"
#include "libplan/search/planner.h"

namespace pp::plan_tool {

struct PlanningCase {
  std::string file;
  Profile profile;
  std::string hash;  ///< of the profile as it was read
  Cluster cluster;
  std::vector<plan::RunFactors> runs;  ///< what corrected profile and cluster since
  std::optional<plan::Calibration> calibration;
};

/// The profiles, without a machine. Several are of one model and type, and of CPU devices of different numbers
/// of cores, or of different tensor degrees. Throws pp::Error (usage) that names the files.
std::vector<PlanningCase> load_profiles(const std::vector<std::string>& files);

/// Each profile is planned on the cluster in devices of its own number of cores (with_devices_of()), or in its
/// tensor groups (with_groups()): devices that leave their cores open have the fewest of all. Loads the
/// profiles of --profile-of. Throws pp::Error (usage) that names the file.
void place(std::vector<PlanningCase>& cases, const ClusterOptions& options);

/// Corrects each profile and its machine by the reports (pp.report) of runs; of several profiles by those whose
/// plans were made from it. Throws pp::Error (data) that names the report.
void calibrate(std::vector<PlanningCase>& cases, const std::vector<std::string>& reports);

/// Starts when it is made; must outlive the searches it watches.
class SearchClock {
 public:
  /// `what` names the work: `planning`.
  SearchClock(std::string what, Seconds limit, const cli::Shell& shell);

  /// Ends the search after the limit; shows progress from the third second on.
  std::function<bool(const plan::SearchProgress&)> observer();
  Seconds elapsed() const { return std::chrono::steady_clock::now() - begin_; }

 private:
  bool look(const plan::SearchProgress& progress);

  std::string phase_;
  Seconds limit_;
  cli::ProgressLine line_;
  Seconds shown_{};  ///< when the line was written last
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace pp::plan_tool
