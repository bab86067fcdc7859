#include "libplan/interop/trainer_readme.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>

#include "libplan/request/request_context.h"
#include "libprofile/core/error.h"
#include "libprofile/core/index.h"
#include "libprofile/core/text.h"

namespace pp::plan::detail {
namespace {

/// Of every plan.
constexpr std::array<std::string_view, 4> kNeverModelled{
    "reading and preparing data, writing checkpoints, evaluation",
    "the first steps, which allocate memory and choose kernels",
    "the norm of all gradients that clipping asks for",
    "memory of the process itself: context, communication buffers, fragments"};

std::string list(const std::string& title, const std::vector<std::string>& lines) {
  if (lines.empty()) return "";
  std::string text = "\n## " + title + "\n\n";
  for (const std::string& line : lines) text += "- " + line + "\n";
  return text;
}

/// Of the smallest device, and what of it was planned with.
std::string memory_of(const Plan& plan) {
  Bytes least = plan.devices.front().memory;
  for (const Device& device : plan.devices) least = std::min(least, device.memory);
  if (least.value <= 0) return "";
  PlanRequest request;
  read_options(request, plan.context);
  return " of " + pp::to_text(least) + ", planned within " +
         (request.memory_limit ? pp::to_text(*request.memory_limit) + " (--memory-limit)"
                               : std::string("95 % of it; --memory-limit plans with less"));
}

std::string promise(const Plan& plan) {
  if (plan.predicted.workers.empty()) return "";
  Bytes peak;
  for (const WorkerPrediction& worker : plan.predicted.workers) peak = std::max(peak, worker.memory.peak);
  std::array<char, 64> samples{};
  std::snprintf(samples.data(), samples.size(), "%.4g samples/s", plan.predicted.samples_per_s);
  return "| step promised | " + pp::to_text(plan.predicted.step) + ", " + samples.data() +
         " |\n| peak of a device | " + pp::to_text(peak) + memory_of(plan) + " |\n";
}

std::vector<int> ids_of(const Plan& plan, const std::vector<WorkerId>& workers) {
  std::vector<int> ids;
  for (const WorkerId worker : workers) ids.push_back(number(plan.workers[at(number(worker))].device));
  return ids;
}

}  // namespace

Processes processes_of(const Plan& plan, const std::string& trainer) {
  std::map<std::string, int> used;
  for (const Worker& worker : plan.workers)
    used[std::ranges::find(plan.devices, worker.device, &Device::id)->node] += plan.tensor_degree;
  const Processes processes{used.begin()->second, static_cast<int>(used.size())};
  for (const auto& [node, gpus] : used) {
    if (gpus == processes.per_node) continue;
    throw Error(ErrorKind::data,
                trainer + " cannot run this plan: it uses " + std::to_string(processes.per_node) +
                    " GPUs of node " + used.begin()->first + " and " + std::to_string(gpus) + " of node " +
                    node +
                    ", and torchrun starts as many processes on each; plan with --for megatron or torchtitan, "
                    "which looks for plans on whole nodes");
  }
  return processes;
}

std::optional<RankOrder> rank_order(const Plan& plan, const Lane& lane) {
  std::vector<int> by_stage, by_replica;
  for (std::size_t w = 0; w < lane.programs.size(); ++w)
    for (const auto& pipeline : lane.workers) by_stage.push_back(ids_of(plan, {pipeline[w]}).front());
  for (const auto& pipeline : lane.workers) {
    const std::vector<int> ids = ids_of(plan, pipeline);
    by_replica.insert(by_replica.end(), ids.begin(), ids.end());
  }
  const bool stages = std::ranges::is_sorted(by_stage), replicas = std::ranges::is_sorted(by_replica);
  if (stages && replicas) return RankOrder::any;
  if (stages) return RankOrder::replicas;
  if (replicas) return RankOrder::pipelines;
  return std::nullopt;
}

std::string trainer_readme(const Plan& plan, const Lane& lane, const TrainerNotes& notes,
                           const std::vector<std::string>& lost) {
  const Processes processes = processes_of(plan, notes.trainer);
  std::string text = "# " + plan.model.name + " for " + notes.trainer + "\n\n| | |\n|---|---|\n";
  text += "| GPUs | " + std::to_string(processes.nodes) + " x " + std::to_string(processes.per_node) + " |\n";
  text += "| pipeline, data, tensor degree | " + std::to_string(lane.programs.size()) + ", " +
          std::to_string(lane.replicas()) + ", " + std::to_string(plan.tensor_degree) + " |\n";
  text += "| mini-batch | " + std::to_string(plan.training.mini_batch) + " samples in " +
          counted(plan.training.micro_batches, "micro-batch") + " |\n";
  text += promise(plan) + "\n```\n" + notes.launch + "```\n";
  text += list("Yours to fill in", notes.yours);
  std::vector<std::string> missing(notes.not_modelled);
  missing.insert(missing.end(), kNeverModelled.begin(), kNeverModelled.end());
  const auto times = plan.context.find("times");
  if (times != plan.context.end() && times->second == "estimated")
    missing.insert(missing.begin(), "any measurement: the times are estimated from the figures of a device");
  text += list("Not modelled", missing);
  return text + list("Left out of the plan", lost);
}

}  // namespace pp::plan::detail
