// Source: torch 2.11, torch/distributed/pipelining: `pipeline()` cuts where a named module begins, a pipeline
// schedule's `_load_csv` reads rows of stage, kind and micro-batch. TorchTitan and NeMo AutoModel take the same
// two from their configuration.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <variant>

#include "libplan/interop/trainer_export.h"
#include "libprofile/core/cluster.h"
#include "libprofile/core/error.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

const std::string kTorchPipeliningName = "torch.distributed.pipelining";
/// Those of launch.py.
constexpr std::array kLosses{"binary_cross_entropy"sv, "cross_entropy"sv, "mse"sv};

/// The runtime hands tensors from a stage to the next one only, and data to the first.
void check_edges(const ResolvedModel& model, const std::vector<int>& stage_of, const std::string& trainer) {
  for (std::size_t i = 0; i < stage_of.size(); ++i) {
    for (const TensorSource& source : model.layers[i].sources) {
      const auto from = at(source.index);
      const bool data = source.kind != TensorSource::Kind::layer;
      if (data ? stage_of[i] == 0 : stage_of[i] - stage_of[from] <= 1) continue;
      const std::string what = data ? "the data" : "the output of " + model.graph.layers[from].name;
      detail::refuse_plan(trainer, model.graph.layers[i].name + " in stage " + std::to_string(stage_of[i]) +
                                       " reads " + what +
                                       (data ? "" : " in stage " + std::to_string(stage_of[from])) +
                                       ", which its runtime hands to the " + (data ? "first" : "next") +
                                       " stage only; plan with cuts that keep the two closer");
    }
  }
}

bool is_index(std::string_view part) { return part.find_first_not_of("0123456789") == part.npos; }

/// `layer1.0` of `layer1.0.conv1`; empty at the top.
std::string parent_of(const std::string& module) {
  const std::size_t dot = module.rfind('.');
  return dot == module.npos ? std::string() : module.substr(0, dot);
}

bool is_within(const std::string& module, const std::string& ancestor) {
  return module.starts_with(ancestor) && (module.size() == ancestor.size() || module[ancestor.size()] == '.');
}

class Modules {
 public:
  Modules(const Plan& plan, const std::vector<int>& stage_of) : stage_of_(stage_of) {
    for (const Layer& layer : plan.model.layers) paths_.push_back(detail::module_of(layer));
  }

  /// The largest module around layer i that lies in its stage as a whole, but no list of modules: `layers.3`,
  /// and not `layers`. None for the root's own code and for code of a module that lies in other stages too.
  std::optional<std::string> whole(std::size_t i) const {
    std::optional<std::string> largest;
    for (std::string module = paths_[i]; !module.empty() && lies_in(module, stage_of_[i]);
         module = parent_of(module)) {
      largest = module;
      if (is_index(module.substr(module.rfind('.') + 1))) break;
    }
    return largest;
  }
  const std::string& path(std::size_t i) const { return paths_[i]; }

 private:
  bool lies_in(const std::string& module, int stage) const {
    for (std::size_t i = 0; i < paths_.size(); ++i)
      if (stage_of_[i] != stage && is_within(paths_[i], module)) return false;
    return true;
  }

  const std::vector<int>& stage_of_;
  std::vector<std::string> paths_;
};

/// Per stage its modules. The cut comes before the first one: code before it goes to the stage before.
std::vector<std::vector<std::string>> modules_of(const Plan& plan, const std::vector<int>& stage_of,
                                                 const std::string& trainer, detail::LossList& lost) {
  const Modules modules(plan, stage_of);
  std::vector<std::vector<std::string>> stages(plan.stages.size());
  for (std::size_t i = 0; i < stage_of.size(); ++i) {
    std::vector<std::string>& names = stages[at(stage_of[i])];
    if (const auto module = modules.whole(i)) {
      if (std::ranges::find(names, *module) == names.end()) names.push_back(*module);
    } else if (names.empty() && stage_of[i] > 0) {
      lost.add("stage " + std::to_string(stage_of[i]) + " begins with " + plan.model.layers[i].name +
               ", inside the code of " + (modules.path(i).empty() ? "the model" : modules.path(i)) +
               ": it goes to the stage before, unless planned with --cut-at block");
    }
  }
  for (std::size_t s = 1; s < stages.size(); ++s) {
    if (stages[s].empty())
      detail::refuse_plan(trainer,
                          "no module begins in stage " + std::to_string(s) + "; plan with --cut-at block");
  }
  return stages;
}

/// Rank w + r * workers is worker w of replica r.
Json device_map(const Plan& plan, const detail::Lane& lane) {
  Json ranks = Json::array();
  for (const std::vector<WorkerId>& pipeline : lane.workers) {
    for (const WorkerId id : pipeline) {
      const Worker& worker = plan.workers[at(number(id))];
      for (const Device& device : plan.devices) {
        if (device.id != worker.device) continue;
        ranks.push_back({{"rank", ranks.size()}, {"device", device_name(plan.devices, device)}});
      }
    }
  }
  return ranks;
}

Json loss_attributes(const Plan& plan) {
  Json attributes = Json::object();
  if (!plan.model.loss) return attributes;
  for (const auto& [name, value] : plan.model.loss->attributes)
    std::visit([&](const auto& said) { attributes[name] = said; }, value);
  return attributes;
}

Json settings_of(const Plan& plan, const detail::Lane& lane) {
  const int samples = plan.training.mini_batch / plan.training.micro_batches;
  return {{"model", plan.model.name},
          {"pipeline_parallel_degree", lane.programs.size()},
          {"data_parallel_degree", lane.replicas()},
          {"mini_batch", plan.training.mini_batch},
          {"micro_batches", plan.training.micro_batches},
          {"micro_batch_size", samples},
          {"dtype", name_of(plan.training.dtype)},
          {"precision", name_of(plan.training.precision)},
          {"shard", name_of(plan.training.shard)},
          {"optimizer", row_of(plan.training.optimizer).torch_class},
          {"loss", plan.model.loss ? plan.model.loss->op : ""},
          {"loss_attributes", loss_attributes(plan)},
          {"ranks", device_map(plan, lane)}};
}

}  // namespace

std::vector<std::vector<std::string>> detail::stage_modules(const Plan& plan, const std::string& trainer,
                                                            LossList& lost) {
  const std::vector<int> stage_of = stage_of_layers(plan);
  check_edges(resolve(plan.model), stage_of, trainer);
  return modules_of(plan, stage_of, trainer, lost);
}

TrainerExport export_torch_pipelining(const Plan& plan, Losses losses) {
  detail::LossList lost(losses);
  detail::refuse_mixture(plan, kTorchPipeliningName);
  detail::refuse_shards(plan, kTorchPipeliningName);
  detail::Lane lane = detail::lane_of(plan, kTorchPipeliningName);
  const Json modules = detail::stage_modules(plan, kTorchPipeliningName, lost);
  detail::leave_out_unsaid(plan, lane, {.model = true, .overlap = false, .recomputing = false}, lost);
  if (plan.training.precision == Precision::mixed)
    lost.add("launch.py keeps no float32 copies of half weights; plan with --precision autocast");
  if (plan.tensor_degree > 1)
    lost.add("launch.py splits no layer over " + std::to_string(plan.tensor_degree) + " GPUs");
  if (plan.context_degree > 1)
    lost.add("launch.py splits no sample over " + std::to_string(plan.context_degree) + " GPUs");
  if (plan.model.loss && std::ranges::find(kLosses, plan.model.loss->op) == kLosses.end())
    lost.add("launch.py has no loss " + plan.model.loss->op + "; put one into its LOSSES");
  detail::leave_out_recompute(plan, lane, lost);
  TrainerExport out;
  out.lost = lost.settle(kTorchPipeliningName);
  out.files = {{"modules.json", dump_json(modules)},
               {"schedule.csv", detail::schedule_csv(lane)},
               {"settings.json", dump_json(settings_of(plan, lane))},
               {"launch.py", std::string(kTorchLauncher)}};
  return out;
}

}  // namespace pp::plan
