// The profiles of a request, each with the machine that its own devices make.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/plan/planning_options.h"
#include "libplan/report/calibration.h"

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
/// tensor groups (with_tensor_groups()): devices that leave their cores open have the fewest of all. Throws
/// pp::Error (usage) that names the file.
void place(std::vector<PlanningCase>& cases, const ClusterOptions& options);

/// Corrects each profile and its machine by the reports (pp.report) of runs; of several profiles by those whose
/// plans were made from it. Throws pp::Error (data) that names the report.
void calibrate(std::vector<PlanningCase>& cases, const std::vector<std::string>& reports);

}  // namespace pp::plan_tool
