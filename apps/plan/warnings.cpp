#include "apps/plan/warnings.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "apps/cli/progress.h"
#include "apps/cli/table.h"
#include "apps/cli/terminal_text.h"
#include "libplan/report/machines.h"
#include "libplan/report/throughput.h"
#include "libprofile/core/cluster.h"
#include "libprofile/core/index.h"
#include "libprofile/core/ops/op_table.h"
#include "libprofile/core/text.h"

namespace pp::plan_tool {
namespace {

/// `a, b and c`
std::string enumeration(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i)
    text.append(i == 0 ? "" : i + 1 == names.size() ? " and " : ", ").append(names[i]);
  return text;
}

void warn_of_few_micro_batches(const plan::Plan& plan) {
  const int micro_batches = plan.training.micro_batches;
  const int depth = static_cast<int>(plan.stages.size()) / plan.schedule.chunks_per_worker;
  if (!plan::require_schedule(plan.schedule.name).synchronous || micro_batches >= depth) return;
  cli::warn(counted(micro_batches, "micro-batch") + " cannot keep " + std::to_string(depth) +
            " stages busy: the bubble is " + cli::percent(plan.predicted.bubble_fraction) + "; take at least " +
            std::to_string(depth) + ", or fewer stages");
}

void warn_of_idle_stages(const plan::Plan& plan) {
  constexpr double kNextToNothing = 0.1;
  const auto busy = [&](const plan::Stage& stage) {
    Seconds most{};
    for (const WorkerId worker : stage.workers)
      most = std::max(most, plan.predicted.workers[index(worker)].busy);
    return most;
  };
  const auto idle = std::ranges::min_element(plan.stages, {}, busy);
  const auto full = std::ranges::max_element(plan.stages, {}, busy);
  if (busy(*idle) >= kNextToNothing * busy(*full)) return;
  cli::warn("stage " + std::to_string(idle - plan.stages.begin()) + " has " +
            cli::percent(busy(*idle) / busy(*full)) + " of the work of stage " +
            std::to_string(full - plan.stages.begin()) +
            ": its device hardly helps; see that the profile's times of the layers are right, or plan with "
            "fewer devices");
}

/// The longest sequence of the rows in tests/data/anchors.
constexpr std::int64_t kLongestRow = 8192;

/// Positions of the longest row of tokens that goes into the model; 0: it takes none.
std::int64_t longest_row(const ModelGraph& model) {
  std::int64_t most = 0;
  for (const DataTensor& input : model.inputs)
    if (input.type.dtype == DType::int64 && input.type.shape.size() == 1)
      most = std::max(most, input.type.shape.front());
  return most;
}

void warn_of_estimates(std::span<const PlanningCase> cases) {
  std::vector<std::string> devices;
  for (const PlanningCase& one : cases) {
    const std::string& name = one.profile.device.name;
    if (one.profile.mode == ProfileMode::estimated && std::ranges::find(devices, name) == devices.end())
      devices.push_back(name);
  }
  if (devices.empty()) return;
  cli::warn(
      "the times of the profile are estimated for " + enumeration(devices) +
      ", not measured: of laboratories that no figure was fitted to, steps were off by 4 to 9 % in the mean, "
      "those of tensor groups of 2 and 4 on several nodes by 13 to 17 %; plans closer than 5 % are not told "
      "apart; measure with pp-profile run for a plan to rely on");
  const auto has_experts = [](const PlanningCase& one) {
    return one.profile.mode == ProfileMode::estimated &&
           std::ranges::find(one.profile.model.layers, kExpertsOp, &Layer::op) !=
               one.profile.model.layers.end();
  };
  if (std::ranges::any_of(cases, has_experts)) {
    cli::warn(
        "the model is a mixture of experts: estimated steps of such were off by 12 to 18 % in the mean "
        "by NeMo, by 4 % by Megatron on one node; what CUDA graphs and overlap change stands in the trainer's "
        "figures");
  }
  for (const PlanningCase& one : cases) {
    const std::int64_t positions = longest_row(one.profile.model);
    if (one.profile.mode != ProfileMode::estimated || positions <= kLongestRow) continue;
    cli::warn("the model's " + std::to_string(positions) + " positions are more than the " +
              std::to_string(kLongestRow) + " of the longest measured steps that estimates rest on");
    break;
  }
}

/// The steps that estimates were compared with (libprofile/estimate) reached no more of a peak.
void warn_of_utilisation(const plan::Plan& plan) {
  constexpr double kMostPublished = 0.65;
  const plan::Throughput throughput = plan::throughput_of(plan, {});
  const auto context = plan.context.find("times");
  const double share = throughput.model_utilisation().value_or(0) * (1 - throughput.masked_share);
  if (context == plan.context.end() || context->second != "estimated" || share <= kMostPublished) return;
  if (throughput.kind == DeviceKind::cpu) return;
  cli::warn("the plan promises " + cli::percent(share) +
            " of the devices' peak; no published step reached more than " + cli::percent(kMostPublished) +
            " of a GPU's: the device's figures may be too good");
}

void warn_about(const Profile& profile) {
  if (profile.mode != ProfileMode::estimated && !profile.estimated.empty()) {
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
  if (const auto unequal = plan::unequal_layers(profile)) {
    cli::warn(counted(unequal->layers, "layer") + " of the profile are equal, but take from " +
              to_text(unequal->least) + " (" + cli::shown(unequal->fastest) + ") to " + to_text(unequal->most) +
              " (" + cli::shown(unequal->slowest) + "); profile again on a quieter machine, without --quick");
  }
}

}  // namespace

void warn_about(std::span<const PlanningCase> cases) {
  warn_of_estimates(cases);
  for (const PlanningCase& one : cases) {
    warn_about(one.profile);
    warn_about(one.profile, one.cluster);
  }
}

void warn_about(const Profile& profile, const Cluster& cluster) {
  const auto other = std::ranges::find_if(cluster.devices, [&](const Device& device) {
    const std::string& profiled = profile.of_kind(device.profile).device.name;
    return device.speed == 1 && !profiled.empty() && !names_model(profiled, device.model);
  });
  if (other == cluster.devices.end()) return;
  cli::warn("the profile's times are of " + cli::shown(profile.of_kind(other->profile).device.name) +
            ", the cluster has " + cli::shown(other->model) +
            ": only its links and memory count; profile such a device, or estimate " +
            "its times with pp-profile estimate --device-spec");
}

void warn_about(const plan::Plan& plan) {
  warn_of_few_micro_batches(plan);
  warn_of_idle_stages(plan);
  warn_of_utilisation(plan);
}

}  // namespace pp::plan_tool
