#include "librun/setup/checks.h"

#include <algorithm>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>

#include "libprofile/core/blocks.h"
#include "libprofile/core/error.h"
#include "libprofile/core/index.h"
#include "libprofile/core/model/model_traits.h"
#include "libprofile/core/ops/op_table.h"
#include "libprofile/core/options.h"
#include "libprofile/device/machine.h"
#include "librun/swap/residency.h"

namespace pp::run {

namespace {

void check_devices(const plan::Plan& plan, std::span<const Device> devices, const Placement& placement,
                   const profile::MachineDevices& machine) {
  for (const plan::Worker& worker : plan.workers) {
    if (!placement.here(worker.id)) continue;
    const Device& device = devices[index(worker.id)];
    if (device.kind != DeviceKind::cuda) continue;
    const int cuda = machine.cuda();
    if (device.index < cuda) continue;
    refuse(
        ErrorKind::device,
        "worker " + std::to_string(number(worker.id)) + ": device " + to_text(device) + ": " +
            (cuda == 0 ? std::string(machine.why_no_cuda).append("; plan for CPU devices")
                       : "this machine has cuda:0 to cuda:" + std::to_string(cuda - 1) + "; plan for these"));
  }
}

[[noreturn]] void refuse_graphs(ErrorKind kind, const std::string& why) {
  throw Error(kind, "--cuda-graphs: " + why + ", or leave out --cuda-graphs");
}

}  // namespace

void check_execution(const ExecutionOptions& options) {
  if (options.data.empty()) refuse(ErrorKind::usage, "--data: give a folder or file, or synthetic");
  check_ranges(execution_options(), options);
  if (options.synthetic_drift > 0 && options.data != "synthetic")
    refuse(ErrorKind::usage,
           "--synthetic-drift: the data are " + options.data + "; leave it out, or use --data synthetic");
}

void check_runnable(const ResolvedModel& model) {
  if (!model.graph.verified) {
    refuse(ErrorKind::data, "model \"" + model.graph.name +
                                "\" was imported by --plan-only, without weights, and never compared with its "
                                "module; import it with "
                                "scripts/import-torch without --plan-only, which compares them, and give that "
                                "model.json by --model");
  }
  if (const std::vector<Block> further = prediction_blocks(model.graph); !further.empty()) {
    refuse(ErrorKind::data,
           "layer \"" + model.graph.layers[at(further.front().begin)].name +
               "\" begins a block of multi-token prediction, whose loss is not weighted here: it is "
               "estimated, planned and exported to Megatron-LM; leave mtp=" +
               std::to_string(further.size()) + " out to train the model without it");
  }
  for (const Layer& layer : model.graph.layers) {
    const OpRow* row = find_op(layer.op);
    if (row == nullptr || row->runnable) continue;
    refuse(ErrorKind::data,
           "layer \"" + layer.name +
               "\" is opaque: the model comes from another planner's profile, it can be planned and "
               "simulated, not run; plan a model with layers");
  }
}

bool calls_libtorch(const ModelGraph& model) {
  const auto calls = [](const Layer& layer) { return layer.call.has_value(); };
  const auto in_any = [&](const auto& layer) { return std::ranges::any_of(layer.nodes, calls); };
  return std::ranges::any_of(model.layers, calls) || std::ranges::any_of(model.layers, in_any) ||
         (model.loss && in_any(*model.loss));
}

void check_autocast(const plan::Plan& plan, const ExecutionOptions& options) {
  if (!options.autocast) return;
  if (plan.training.dtype != DType::float32) {
    refuse(ErrorKind::usage, "--autocast: the plan trains in " + std::string(name_of(plan.training.dtype)) +
                                 "; plan with float32, or leave it out");
  }
}

std::string other_autocast(const plan::Plan& plan, const ExecutionOptions& options) {
  if (options.autocast == plan.training.autocast || plan.predicted.stages.empty()) return "";
  const auto text = [](std::optional<Autocast> autocast) {
    return autocast ? "autocast to " + std::string(name_of(*autocast)) : "no autocast";
  };
  return "the plan's profile was of " + text(plan.training.autocast) + ", this run is of " +
         text(options.autocast) +
         ": the predicted times and bytes are not its own; plan with a profile of the " +
         "same (pp-profile run --autocast)";
}

std::vector<Device> devices_of_workers(const plan::Plan& plan, const Placement& placement,
                                       const profile::MachineDevices& machine) {
  std::vector<Device> devices;
  for (const plan::Worker& worker : plan.workers) {
    devices.push_back(*std::find_if(plan.devices.begin(), plan.devices.end(),
                                    [&](const Device& device) { return device.id == worker.device; }));
  }
  check_devices(plan, devices, placement, machine);
  return devices;
}

CoreBinding cores_of_workers(std::span<const Device> devices, const Placement& placement) {
  std::vector<Device> shared;
  std::vector<std::size_t> of;
  for (std::size_t w = 0; w < devices.size(); ++w) {
    const int rank = placement.of(WorkerId{static_cast<int>(w)});
    if (rank != placement.rank && !placement.beside[static_cast<std::size_t>(rank)]) continue;
    shared.push_back(devices[w]);
    of.push_back(w);
  }
  CoreBinding found = bind_cores(shared, profile::usable_cores());
  CoreBinding all{.cores = std::vector<std::vector<int>>(devices.size()),
                  .threads = std::vector<int>(devices.size(), 1),
                  .warnings = std::move(found.warnings)};
  for (std::size_t i = 0; i < of.size(); ++i) {
    all.cores[of[i]] = std::move(found.cores[i]);
    all.threads[of[i]] = found.threads[i];
  }
  return all;
}

namespace {

/// A sum of two values is the same in either order, of three it is not: `(a+(b+c))`, the lesser name first.
std::string sum_of(const std::string& a, const std::string& b) {
  if (a.empty() || b.empty()) return a + b;
  return "(" + std::min(a, b) + "+" + std::max(a, b) + ")";
}

}  // namespace

std::string regrouped_layer(const plan::Plan& plan, const ResolvedModel& model) {
  std::map<std::string, std::size_t, std::less<>> stages;
  for (std::size_t s = 0; s < plan.stages.size(); ++s)
    for (const std::string& layer : plan.stages[s].layers) stages[layer] = s;
  const auto stage_of = [&](std::size_t layer) {
    return layer == model.layers.size() ? plan.stages.size() - 1 : stages.at(model.graph.layers[layer].name);
  };
  std::map<std::pair<int, int>, std::vector<std::size_t>> readers;  // by layer and output, the loss first
  for (const TensorSource& source : model.loss_sources)
    if (source.kind == TensorSource::Kind::layer)
      readers[{source.index, source.output}] = {model.layers.size()};
  for (std::size_t l = model.layers.size(); l-- > 0;) {
    const ResolvedLayer& layer = model.layers[l];
    for (std::size_t i = 0; i < layer.sources.size(); ++i) {
      const TensorSource& source = layer.sources[i];
      if (source.kind == TensorSource::Kind::layer && layer.input_gradient[i])
        readers[{source.index, source.output}].push_back(l);
    }
  }
  for (const auto& [tensor, list] : readers) {
    const std::size_t home = stage_of(static_cast<std::size_t>(tensor.first));
    std::string alone, own, sent;
    std::map<std::size_t, std::string, std::greater<>> others;  // the sums of other stages
    for (const std::size_t reader : list) {
      alone = sum_of(alone, std::to_string(reader));
      if (stage_of(reader) != home) {
        std::string& part = others[stage_of(reader)];
        part = sum_of(part, std::to_string(reader));
      }
    }
    for (const auto& [stage, part] : others) sent = sum_of(sent, part);
    for (const std::size_t reader : list)
      if (stage_of(reader) == home) sent = sum_of(sent, std::to_string(reader));
    if (sent != alone) return model.graph.layers[static_cast<std::size_t>(tensor.first)].name;
  }
  return {};
}

void check_frames(const plan::Plan& plan, const ResolvedModel& model, const EpochShape& epoch) {
  const std::string schedule = "schedule " + plan.schedule.name;
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    if (batch_norms(model, static_cast<int>(i)).empty()) continue;
    throw Error(ErrorKind::data,
                "layer \"" + model.graph.layers[i].name + "\": batch norm: " + schedule +
                    " sees one frame at a time, whose statistics are no batch's; use layer_norm or "
                    "group_norm, or plan with pipedream");
  }
  // A gradient is taken for a later frame than its own.
  if (const int left = epoch.size(epoch.count - 1); left != epoch.mini_batch) {
    throw Error(ErrorKind::data, schedule + ": frames have " + std::to_string(epoch.mini_batch) +
                                     " samples each, the last one has " + std::to_string(left) +
                                     "; give a multiple, or plan with --mini-batch 1");
  }
}

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

namespace {

/// How many rows its products have depends on values.
bool has_experts(const Layer& layer) {
  const OpRow* row = find_op(layer.op);
  return (row != nullptr && row->work.kind == OpWork::Kind::experts) ||
         std::ranges::any_of(layer.nodes, has_experts);
}

}  // namespace

std::string why_not_recorded(const plan::Plan& plan, const ResolvedModel& model, StageId stage) {
  const bool last = index(stage) + 1 == plan.stages.size();
  const std::vector<std::string>& names = plan.stages[index(stage)].layers;
  for (const Layer& layer : model.graph.layers) {
    if (std::ranges::find(names, layer.name) == names.end()) continue;
    if (draws_numbers(layer)) return "layer \"" + layer.name + "\" draws random numbers";
    if (has_experts(layer)) return "layer \"" + layer.name + "\" sends positions to experts";
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
