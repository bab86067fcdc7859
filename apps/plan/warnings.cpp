#include "apps/plan/warnings.h"

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "apps/cli/log.h"
#include "apps/cli/table.h"
#include "libprofile/core/counted.h"

namespace pp::plan_tool {
namespace {

/// `a, b and c`
std::string enumeration(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i)
    text.append(i == 0 ? "" : i + 1 == names.size() ? " and " : ", ").append(names[i]);
  return text;
}

}  // namespace

void warn_about(const Profile& profile) {
  if (profile.mode == ProfileMode::estimated) {
    cli::warn(
        "the times of the profile are estimated for " + profile.device.name +
        ", not measured: such steps were off by up to 12 % of published ones, and plans closer than 5 % are "
        "not told apart; measure with pp-profile run for a plan to rely on");
  } else if (!profile.estimated.empty()) {
    cli::warn("the profile only estimates " + enumeration(profile.estimated) +
              "; measure with pp-profile run for a plan to rely on");
  }
  std::vector<std::string> ratios;
  for (const WholeModelPoint& point : profile.whole_model) {
    const std::optional<double> ratio = layer_sum_ratio(profile, point.micro_batch_size);
    if (ratio && std::abs(*ratio - 1) > 0.10)
      ratios.push_back(cli::cell(*ratio, 3) + " at micro-batch size " + std::to_string(point.micro_batch_size));
  }
  if (!ratios.empty()) {
    cli::warn("the layers of the profile add up to " + enumeration(ratios) +
              " of the whole model; profile again on a quieter machine");
  }
}

void warn_about(const plan::Plan& plan) {
  const int micro_batches = plan.training.micro_batches;
  const int depth = static_cast<int>(plan.stages.size()) / plan.schedule.chunks_per_worker;
  if (!plan::require_schedule(plan.schedule.name).synchronous || micro_batches >= depth) return;
  cli::warn(counted(micro_batches, "micro-batch") + " cannot keep " + std::to_string(depth) +
            " stages busy: the bubble is " + cli::percent(plan.predicted.bubble_fraction) + "; take at least " +
            std::to_string(depth) + ", or fewer stages");
}

}  // namespace pp::plan_tool
