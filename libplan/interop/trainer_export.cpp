#include "libplan/interop/trainer_export.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <utility>

#include "libplan/request/request.h"
#include "libplan/schedule/program_text.h"
#include "libprofile/core/error.h"
#include "libprofile/core/index.h"
#include "libprofile/core/limits.h"
#include "libprofile/core/ops/op_table.h"
#include "libprofile/core/text.h"

namespace pp::plan::detail {

namespace {

void check_step(const Plan& plan, const std::string& trainer, Copies copies) {
  if (plan.schedule.weight_policy != WeightPolicy::flush || plan.workers.front().program.stream) {
    refuse_plan(
        trainer,
        "schedule " + plan.schedule.name +
            " updates weights while micro-batches are in flight; plan with a synchronous one, --schedule 1f1b");
  }
  if (plan.predicted.swap.bandwidth.value > 0)
    refuse_plan(trainer,
                "schedule " + plan.schedule.name +
                    " keeps weights on the host and loads them for every operation; plan with another, "
                    "--schedule 1f1b");
  if (!plan.tied.empty() && copies == Copies::refused) {
    refuse_plan(trainer, plan.tied.front().parameter +
                             " has copies in several stages, whose gradients nobody there would add; plan with "
                             "--tied stage");
  }
  if (plan.training.mini_batch % plan.training.micro_batches != 0) {
    refuse_plan(trainer,
                std::to_string(plan.training.mini_batch) + " samples in " +
                    std::to_string(plan.training.micro_batches) +
                    " micro-batches are not of one size; plan with --micro-batches that divide the mini-batch");
  }
}

int replicas_of(const Plan& plan, const std::string& trainer) {
  const std::size_t replicas = plan.stages.front().workers.size();
  for (const Stage& stage : plan.stages) {
    if (stage.workers.size() != replicas) {
      refuse_plan(trainer, "stages have unequal replicas, " + replicas_text(plan) +
                               "; plan with --schedule hybrid, or --replicas of one number");
    }
  }
  if (plan.training.micro_batches % static_cast<int>(replicas) != 0) {
    refuse_plan(trainer, std::to_string(plan.training.micro_batches) +
                             " micro-batches are not the same number for " + std::to_string(replicas) +
                             " replicas; plan with --micro-batches that are a multiple");
  }
  return static_cast<int>(replicas);
}

/// Of one replica: the stages of each of its workers, in the order of the first ones.
std::vector<std::pair<std::vector<int>, WorkerId>> pipeline_of(const Plan& plan, std::size_t replica) {
  std::map<WorkerId, std::vector<int>> held;
  for (std::size_t s = 0; s < plan.stages.size(); ++s)
    held[plan.stages[s].workers[replica]].push_back(static_cast<int>(s));
  std::vector<std::pair<std::vector<int>, WorkerId>> workers;
  workers.reserve(held.size());
  for (auto& [worker, stages] : held) workers.emplace_back(std::move(stages), worker);
  std::ranges::sort(workers);
  return workers;
}

/// The program with its own micro-batches, every `replicas`-th from `replica` on, numbered from 0; empty when
/// it has others.
Program renumbered(const Program& program, int replica, int replicas) {
  Program own;
  for (Op op : program) {
    if (!has_micro_batch(op.kind)) continue;
    if (op.micro_batch % replicas != replica) return {};
    op.micro_batch /= replicas;
    own.push_back(op);
  }
  return own;
}

/// Rows that every plan has.
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

/// Memory of the smallest device, and what of it was planned with.
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

void refuse_plan(const std::string& trainer, const std::string& why) {
  throw Error(ErrorKind::data, trainer + " cannot run this plan: " + why + std::string(kLimits));
}

std::vector<std::string> LossList::settle(const std::string& trainer) const {
  if (rule_ == Losses::leave_out || lost_.empty()) return lost_;
  std::string text = trainer + " cannot say all of this plan:";
  for (const std::string& what : lost_) text += " " + what + ";";
  throw Error(ErrorKind::data, text + " --lossy exports the rest" + std::string(kLimits));
}

Lane lane_of(const Plan& plan, const std::string& trainer, Copies copies) {
  check_step(plan, trainer, copies);
  const int replicas = replicas_of(plan, trainer);
  Lane lane{.micro_batches = plan.training.micro_batches / replicas};
  for (int r = 0; r < replicas; ++r) {
    std::vector<std::vector<int>> stages;
    std::vector<Program> programs;
    std::vector<WorkerId>& workers = lane.workers.emplace_back();
    for (auto& [held, worker] : pipeline_of(plan, at(r))) {
      const Program& program = plan.workers[at(number(worker))].program.program;
      stages.push_back(std::move(held));
      programs.push_back(renumbered(program, r, replicas));
      workers.push_back(worker);
      if (programs.back().empty()) {
        refuse_plan(trainer, "the replicas are no pipelines of their own; plan with --schedule hybrid");
      }
    }
    if (r == 0) {
      lane.stages = std::move(stages);
      lane.programs = std::move(programs);
    } else if (stages != lane.stages || programs != lane.programs) {
      refuse_plan(trainer, "its replicas run different orders; plan with --schedule hybrid");
    }
  }
  return lane;
}

bool is_checkpointed(const Plan& plan, std::string_view what) {
  const auto said = plan.context.find("checkpoint");
  return said != plan.context.end() && said->second == what;
}

int first_checkpointed(const Plan& plan) {
  const auto said = plan.context.find("checkpoint");
  int blocks = 0;
  if (said != plan.context.end()) std::sscanf(said->second.c_str(), "first %d", &blocks);
  return blocks;
}

bool splits_sequence(const Plan& plan) {
  const auto said = plan.context.find("sequence_parallel");
  return plan.tensor_degree > 1 && (said == plan.context.end() || said->second == "true");
}

const Layer* mixture_of(const Plan& plan) {
  const auto found = std::ranges::find(plan.model.layers, kExpertsOp, &Layer::op);
  return found == plan.model.layers.end() ? nullptr : &*found;
}

void refuse_mixture(const Plan& plan, const std::string& trainer) {
  if (const Layer* mixture = mixture_of(plan))
    refuse_plan(trainer,
                "layer " + mixture->name +
                    " is a mixture of experts, which is exported for Megatron-LM alone (--for megatron)");
}

void refuse_shards(const Plan& plan, const std::string& trainer) {
  if (plan.shard_group.degree > 1)
    refuse_plan(trainer, "its weights are sharded over " + std::to_string(plan.shard_group.degree) +
                             " GPUs, which this export does not write; export it for torchtitan, automodel or "
                             "deepspeed, or plan from a profile without --shard-degree");
}

void refuse_lone_chunks(const Plan& plan, const Lane& lane, const std::string& trainer) {
  if (plan.stages.size() > 1 && lane.programs.size() == 1)
    refuse_plan(trainer, "a pipeline of one worker has one stage there, the plan's has " +
                             std::to_string(plan.stages.size()) + "; give --stages with --replicas, or 1f1b");
}

void leave_out_unsaid(const Plan& plan, const Lane& lane, const Carried& carried, LossList& lost) {
  const Training& training = plan.training;
  if (training.memory_format != MemoryFormat::contiguous)
    lost.add("tensors are contiguous between its stages, not " + std::string(name_of(training.memory_format)));
  if (training.products && !carried.products)
    lost.add("its products are of " + std::string(name_of(training.dtype)) + ", not of " +
             std::string(name_of(*training.products)) + "; estimate with --dtype bfloat16");
  if (training.autocast == Autocast::float16) lost.add("it casts products to bfloat16, not to float16");
  if (!carried.overlap && lane.replicas() > 1 && plan.predicted.all_reduce_overlap > 0)
    lost.add(
        "gradients are added up after the last backward and not behind it; plan with --all-reduce-overlap 0");
  if (!carried.recomputing && is_checkpointed(plan))
    lost.add(
        "no block runs again, as the profile has it: stages keep their activations and need more memory than "
        "planned; estimate without --checkpoint");
  if (carried.model) return;
  if (training.dtype == DType::float64) lost.add("it trains in float32 or bfloat16, not in float64");
  const auto frozen = std::ranges::find_if(plan.model.layers, [](const Layer& l) { return !l.frozen.none(); });
  if (frozen != plan.model.layers.end())
    lost.add("frozen weights, such as those of " + frozen->name +
             ": it trains all, which takes longer than planned");
  for (std::size_t i = 0; i < plan.model.inputs.size(); ++i) {
    const DataTensor& input = plan.model.inputs[i];
    if (i > at(carried.predictions) || is_floating(input.type.dtype))
      lost.add("its data are tokens: nothing gives " + input.name + " to the model");
  }
}

std::string schedule_csv(const Lane& lane) {
  ProgramSet rows;
  rows.workers = lane.programs;
  return to_csv(rows);
}

void leave_out_recompute(const Plan& plan, Lane& lane, LossList& lost) {
  if (is_checkpointed(plan, "attention"))
    lost.add(
        "it keeps attention's scores, which the profile recomputes; estimate without --checkpoint=attention");
  if (const int first = first_checkpointed(plan); first > 0)
    lost.add("it keeps what the first " + counted(first, "block") +
             " of each stage recomputes, and needs more memory than planned");
  std::vector<bool> again(plan.stages.size());
  for (std::size_t s = 0; s < again.size(); ++s) again[s] = !plan.stages[s].recompute.empty();
  for (Program& program : lane.programs) {
    for (const Op& op : program)
      if (op.kind == OpKind::recompute) again[at(number(op.stage))] = true;
    std::erase_if(program, [](const Op& op) { return op.kind == OpKind::recompute; });
  }
  for (std::size_t s = 0; s < again.size(); ++s) {
    if (again[s]) {
      lost.add("forwards of stage " + std::to_string(s) +
               " do not run again: it keeps its activations and needs more memory than planned");
    }
  }
}

std::string module_of(const Layer& layer) { return layer.scope.value_or(layer.name); }

std::vector<int> stage_of_layers(const Plan& plan) {
  std::map<std::string_view, int> stage_of;
  for (std::size_t s = 0; s < plan.stages.size(); ++s)
    for (const std::string& layer : plan.stages[s].layers) stage_of[layer] = static_cast<int>(s);
  std::vector<int> stages;
  for (const Layer& layer : plan.model.layers) stages.push_back(stage_of.at(layer.name));
  return stages;
}

Processes processes_of(const Plan& plan, const std::string& trainer) {
  std::map<std::string, int> used;
  for (const Worker& worker : plan.workers)
    used[std::ranges::find(plan.devices, worker.device, &Device::id)->node] += group_size(plan);
  const Processes processes{used.begin()->second, static_cast<int>(used.size())};
  for (const auto& [node, gpus] : used) {
    if (gpus == processes.per_node) continue;
    refuse_plan(trainer, "it uses " + std::to_string(processes.per_node) + " GPUs of node " +
                             used.begin()->first + " and " + std::to_string(gpus) + " of node " + node +
                             ", and torchrun starts as many processes on each; plan with --for megatron or "
                             "torchtitan, which looks for plans on whole nodes");
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
  text += "| pipeline, data, tensor, context degree | " + std::to_string(lane.programs.size()) + ", " +
          std::to_string(lane.replicas() * groups_of_samples(plan)) + ", " +
          std::to_string(plan.tensor_degree) + ", " + std::to_string(plan.context_degree) + " |\n";
  if (plan.expert_degree > 1) text += "| expert degree | " + std::to_string(plan.expert_degree) + " |\n";
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
