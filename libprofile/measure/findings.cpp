#include "libprofile/measure/findings.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "libprofile/core/text.h"
#include "libprofile/measure/statistics.h"

namespace pp::profile {

namespace {

constexpr double kTolerance = 0.10;
constexpr double kCacheLoss = 2;

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

LayerTimes on_all_devices(const LayerPoint& point) {
  return {point.forward, point.backward, point.input_gradient.value_or(TimeStat{}),
          point.weight_gradient.value_or(TimeStat{})};
}

/// The full backward of all layers over its halves, under the condition where that is largest.
double backward_over_halves(const Profile& profile, std::size_t point) {
  std::vector<const LayerProfile*> layers;
  for (const LayerProfile& layer : profile.layers) layers.push_back(&layer);
  if (profile.loss) layers.push_back(&*profile.loss);
  const auto under = [&](const auto& condition) {
    Seconds full{}, halves{};
    for (const LayerProfile* layer : layers) {
      const LayerTimes times = condition(layer->points[point]);
      full += times.backward.median;
      halves += times.input_gradient.median + times.weight_gradient.median;
    }
    return halves > Seconds{} ? full / halves : 0.0;
  };
  const auto recorded = [](std::optional<LayerTimes> LayerPoint::*condition) {
    return [condition](const LayerPoint& at) { return (at.*condition).value_or(LayerTimes{}); };
  };
  return std::max({under(on_all_devices), under(recorded(&LayerPoint::first)),
                   under(recorded(&LayerPoint::in_part)), under(recorded(&LayerPoint::alone))});
}

}  // namespace

std::vector<std::string> conditions_findings(const DeviceSet& devices, int machine_cores,
                                             const std::optional<Load>& load,
                                             std::optional<double> cache_loss) {
  std::vector<std::string> findings;
  if (devices.kind == DeviceKind::cpu && devices.count * devices.cores > machine_cores) {
    findings.push_back(
        to_text(devices) + " needs " + std::to_string(devices.count * devices.cores) +
        " cores, this process may use " + counted(machine_cores, "core") +
        ": devices share cores and their times hold for this sharing only; ask for fewer devices or cores");
  }
  if (load && load->average > load->cores) {
    findings.push_back("the load average is " + one_decimal(load->average) + " on " +
                       counted(load->cores, "core") +
                       ": other programs slow the measurement down; end them, or measure again later");
  }
  if (cache_loss && *cache_loss > kCacheLoss) {
    findings.push_back(
        "8 MiB that a core leaves alone for 5 ms take " + one_decimal(*cache_loss) +
        " times as long to read again: others use up the last cache, here or in other virtual machines on this "
        "processor; stages that wait will take longer than predicted; end other programs, use a machine of "
        "your own, or plans with more micro-batches, in which stages wait less");
  }
  return findings;
}

std::vector<std::string> profile_findings(const Profile& profile) {
  Offenders noisy, unequal, contradictory;
  for (const WholeModelPoint& point : profile.whole_model) {
    const double spread = std::max(relative_spread(point.forward), relative_spread(point.backward));
    if (spread > kTolerance) noisy.add(point.micro_batch_size, spread, spread);
    const double ratio = layer_sum_ratio(profile, point.micro_batch_size).value_or(1.0);
    if (std::abs(ratio - 1.0) > kTolerance) unequal.add(point.micro_batch_size, std::abs(ratio - 1.0), ratio);
  }
  for (std::size_t i = 0; i < profile.micro_batch_sizes.size(); ++i) {
    const double ratio = backward_over_halves(profile, i);
    if (ratio > 1.0 + kTolerance) contradictory.add(profile.micro_batch_sizes[i], ratio, ratio);
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
  if (!contradictory.sizes.empty()) {
    findings.push_back("full backwards at " + at_sizes(contradictory.sizes) + " take up to " +
                       percent(contradictory.worst) +
                       " of their two halves, which do the same work: the machine was disturbed in between; "
                       "end other programs and profile again");
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

namespace {

constexpr double kDriftTolerance = 0.10;

double median(std::span<const double> seconds) { return summarise(seconds).median.count(); }

}  // namespace

std::optional<double> reference_change(std::span<const double> seconds) {
  if (seconds.size() < 8) return std::nullopt;
  const std::size_t quarter = seconds.size() / 4;
  const double first = median(seconds.first(quarter));
  return first > 0 ? std::optional(median(seconds.last(quarter)) / first - 1) : std::nullopt;
}

std::optional<std::string> reference_finding(std::span<const double> seconds) {
  const std::optional<double> change = reference_change(seconds);
  if (!change || std::abs(*change) <= kDriftTolerance) return std::nullopt;
  return "a fixed piece of work took " + std::to_string(std::lround(100 * std::abs(*change))) + " % " +
         (*change > 0 ? "longer" : "less") +
         " at the end of the measurement than at its beginning: the cores' clock changed, or other programs "
         "that share cores, caches or memory came or went; let the machine cool, end other programs and "
         "profile again";
}

}  // namespace pp::profile
