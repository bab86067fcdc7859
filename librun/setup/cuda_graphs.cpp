#include "librun/setup/cuda_graphs.h"

#include <algorithm>
#include <map>
#include <utility>

#include "libprofile/core/error.h"
#include "libprofile/core/model/draws.h"
#include "librun/swap/residency.h"

namespace pp::run {
namespace {

[[noreturn]] void refuse_graphs(ErrorKind kind, const std::string& why) {
  throw Error(kind, "--cuda-graphs: " + why + ", or leave out --cuda-graphs");
}

}  // namespace

void check_cuda_graphs(const plan::Plan& plan, std::span<const Device> devices, const Placement& placement) {
  if (plan.schedule.weight_policy != plan::WeightPolicy::flush || plan.workers.front().program.stream) {
    refuse_graphs(ErrorKind::usage, "schedule " + plan.schedule.name +
                                        " has weights at several places (policy " +
                                        std::string(name_of(plan.schedule.weight_policy)) +
                                        "), a graph reads them at one; plan with a synchronous schedule");
  }
  if (swaps(plan)) {
    refuse_graphs(ErrorKind::usage,
                  "schedule " + plan.schedule.name +
                      " brings weights to the device anew, a graph reads them at one place; plan with another");
  }
  for (const plan::Worker& worker : plan.workers) {
    const Device& device = devices[index(worker.id)];
    if (placement.here(worker.id) && device.kind != DeviceKind::cuda) {
      refuse_graphs(ErrorKind::device, "worker " + std::to_string(number(worker.id)) + ": device " +
                                           to_text(device) + " is no GPU; plan for GPUs");
    }
  }
}

std::string why_not_recorded(const plan::Plan& plan, const ResolvedModel& model, StageId stage) {
  const bool last = index(stage) + 1 == plan.stages.size();
  const std::vector<std::string>& names = plan.stages[index(stage)].layers;
  for (const Layer& layer : model.graph.layers) {
    if (std::ranges::find(names, layer.name) != names.end() && draws_numbers(layer))
      return "layer \"" + layer.name + "\" draws random numbers";
  }
  if (last && model.graph.loss && draws_numbers(*model.graph.loss)) return "the loss draws random numbers";
  return "";
}

std::vector<PassKind> pass_kinds(const plan::Program& program, StageId stage) {
  std::vector<PassKind> kinds;
  std::map<int, std::size_t> by_micro_batch;
  bool sums = false;
  for (const plan::Op& op : program) {
    if (op.stage != stage) continue;
    if (op.kind == plan::OpKind::forward) {
      by_micro_batch[op.micro_batch] = kinds.size();
      kinds.emplace_back();
    }
    if (op.kind == plan::OpKind::recompute) kinds[by_micro_batch.at(op.micro_batch)].runs_again = true;
    if (op.kind == plan::OpKind::backward || op.kind == plan::OpKind::weight_gradient) {
      PassKind& kind = kinds[by_micro_batch.at(op.micro_batch)];
      kind.splits = op.kind == plan::OpKind::weight_gradient;
      kind.sets_sums = !std::exchange(sums, true);
    }
  }
  return kinds;
}

}  // namespace pp::run
