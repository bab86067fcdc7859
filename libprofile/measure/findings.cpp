#include "libprofile/measure/findings.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

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

/// `micro-batch size 4`, `micro-batch sizes 1, 2`
std::string at_sizes(const std::vector<std::int64_t>& sizes) {
  std::string text = sizes.size() == 1 ? "micro-batch size" : "micro-batch sizes";
  for (std::size_t i = 0; i < sizes.size(); ++i)
    text.append(i == 0 ? " " : ", ").append(std::to_string(sizes[i]));
  return text;
}

/// The sizes where a figure passes its limit, and the worst of them.
struct Offenders {
  std::vector<std::int64_t> sizes;
  double worst = 0;

  void add(std::int64_t size, double excess, double value) {
    sizes.push_back(size);
    if (excess > largest_excess) worst = value;
    largest_excess = std::max(largest_excess, excess);
  }
  double largest_excess = 0;
};

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
  Offenders noisy, unequal;
  for (const WholeModelPoint& point : profile.whole_model) {
    const double spread = std::max(relative_spread(point.forward), relative_spread(point.backward));
    if (spread > kTolerance) noisy.add(point.micro_batch_size, spread, spread);
    const double ratio = layer_sum_ratio(profile, point.micro_batch_size).value_or(1.0);
    if (std::abs(ratio - 1.0) > kTolerance) unequal.add(point.micro_batch_size, std::abs(ratio - 1.0), ratio);
  }
  std::vector<std::string> findings;
  if (!noisy.sizes.empty()) {
    findings.push_back(
        "times at " + at_sizes(noisy.sizes) + " spread by up to " + percent(noisy.worst) +
        " around the median: predictions will be as rough; end other programs, or raise --budget");
  }
  if (!unequal.sizes.empty()) {
    findings.push_back(
        "the layers at " + at_sizes(unequal.sizes) + " add up to " + percent(unequal.worst) +
        " of the whole model's time: predictions will be off by as much; end other programs, or raise "
        "--budget");
  }
  return findings;
}

std::optional<std::string> outlier_finding(int outliers, int passes) {
  if (outliers < 3 || outliers <= kTolerance * passes) return std::nullopt;
  return std::to_string(outliers) + " of " + std::to_string(passes) +
         " passes were interrupted (far above the median of their size): other programs use these cores; end "
         "them, or "
         "choose other cores with --device";
}

}  // namespace pp::profile
