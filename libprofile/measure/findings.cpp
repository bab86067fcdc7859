#include "libprofile/measure/findings.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "libprofile/measure/device_set.h"
#include "libprofile/measure/statistics.h"

namespace pp::profile {
namespace {

constexpr double kTolerance = 0.10;

std::string percent(double share) { return std::to_string(std::lround(share * 100)) + " %"; }

std::string one_decimal(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

std::string at_size(std::int64_t micro_batch_size) {
  return "micro-batch size " + std::to_string(micro_batch_size);
}

}  // namespace

std::vector<std::string> conditions_findings(const DeviceSet& devices, int machine_cores,
                                             std::optional<double> load) {
  std::vector<std::string> findings;
  const std::string have = std::to_string(machine_cores) + (machine_cores == 1 ? " core" : " cores");
  if (devices.kind == DeviceKind::cpu && devices.count * devices.cores > machine_cores) {
    findings.push_back(
        to_text(devices) + " needs " + std::to_string(devices.count * devices.cores) +
        " cores, this machine has " + have +
        ": devices share cores and their times hold for this sharing only; ask for fewer devices or cores");
  }
  if (load && *load > machine_cores) {
    findings.push_back("the load average is " + one_decimal(*load) + " on " + have +
                       ": other programs slow the measurement down; end them, or measure again later");
  }
  return findings;
}

std::vector<std::string> profile_findings(const Profile& profile) {
  std::vector<std::string> findings;
  for (const WholeModelPoint& point : profile.whole_model) {
    const double spread = std::max(relative_spread(point.forward), relative_spread(point.backward));
    if (spread > kTolerance) {
      findings.push_back(
          "times at " + at_size(point.micro_batch_size) + " spread by " + percent(spread) +
          " around the median: predictions will be as rough; end other programs, or raise --budget");
    }
    const auto ratio = layer_sum_ratio(profile, point.micro_batch_size);
    if (ratio && std::abs(*ratio - 1.0) > kTolerance) {
      findings.push_back(
          "the layers at " + at_size(point.micro_batch_size) + " add up to " + percent(*ratio) +
          " of the whole model's time: the layer times are not those of a run; raise --budget, or leave "
          "this size out");
    }
  }
  return findings;
}

std::optional<std::string> outlier_finding(std::int64_t micro_batch_size,
                                           std::span<const double> pass_seconds) {
  const int outliers = count_outliers(pass_seconds);
  const int passes = static_cast<int>(pass_seconds.size());
  if (outliers <= kTolerance * passes) return std::nullopt;
  return std::to_string(outliers) + " of " + std::to_string(passes) + " passes at " +
         at_size(micro_batch_size) +
         " were interrupted (far above the median): other programs use these cores; end them, or choose other "
         "cores";
}

}  // namespace pp::profile
