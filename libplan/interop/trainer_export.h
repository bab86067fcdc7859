// A plan for other trainers: what of it their formats can say. They know pipelines of modules, the same number
// of replicas of every stage, and synchronous steps; the rest of a plan is refused by name, or left out with a
// line that says so. An exported folder has a README.md: what the plan promises, how to start it, and what was
// not modelled.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "libplan/plan/plan.h"

namespace pp::plan {

struct ExportedFile {
  std::string name;
  std::string content;
};

struct TrainerExport {
  std::vector<ExportedFile> files;
  std::vector<std::string> lost;  ///< of the plan, and what that means; empty unless asked to leave it out
  std::vector<std::string> warnings{};  ///< what has to be filled in before the files train this model
};

/// Whether what a format cannot say is left out instead of refused. What would train other weights, or not at
/// all, is refused in any case.
enum class Losses { refuse, leave_out };

/// For torch.distributed.pipelining, torch 2.11: `modules.json` (per stage the names of its modules, the first
/// one where the stage begins), `schedule.csv` (a row per rank, `compute_only`), `settings.json`, and
/// `launch.py`, which trains with them under torchrun. The names are the layers' scopes: PyTorch's, for a model
/// that came from there. Throws pp::Error (data) that names everything the plan would lose.
TrainerExport export_torch_pipelining(const Plan& plan, Losses losses);

/// For Megatron-LM: `arguments.txt`, an argument a line, `--pipeline-model-parallel-layout` among them,
/// `model.txt` with the model and the optimizer, `launch.sh`, README.md. The model is a row of equal
/// blocks (layers `PREFIX<n>.*` for n = 0, 1, ...) between an embedding and a head, and no block is cut;
/// embedding and head may share their weights. Throws as export_torch_pipelining().
TrainerExport export_megatron(const Plan& plan, Losses losses);

/// For trainers that run Megatron-Core by other words: `overrides.txt`, a key of Hydra a line, README.md. Plans
/// as for Megatron-LM.
TrainerExport export_megatron_bridge(const Plan& plan, Losses losses);
TrainerExport export_verl(const Plan& plan, Losses losses);
TrainerExport export_nemo_rl(const Plan& plan, Losses losses);

/// For DeepSpeed: `ds_config.json`, `partition.toml`, README.md. Throws as export_torch_pipelining().
TrainerExport export_deepspeed(const Plan& plan, Losses losses);

/// For TorchTitan, 0.3: `plan_config.py`, `schedule.csv`, `launch.sh`, README.md. Models as for Megatron-LM,
/// whose modules have TorchTitan's own names (`tok_embeddings`, `layers.0`, `norm`, `lm_head`). Throws as
/// export_torch_pipelining().
TrainerExport export_torchtitan(const Plan& plan, Losses losses);

/// For NeMo AutoModel, 0.7: `config.yaml`, `schedule.csv`, README.md. Modules have the names of the layers'
/// scopes, which are transformers' for a model of a config.json. Throws as export_torch_pipelining().
TrainerExport export_automodel(const Plan& plan, Losses losses);

namespace detail {

/// Throws pp::Error (data): `TRAINER cannot run this plan: WHY`, with kLimits.
[[noreturn]] void refuse_plan(const std::string& trainer, const std::string& why);

/// What an export leaves out.
class LossList {
 public:
  explicit LossList(Losses rule) : rule_(rule) {}
  /// `what` can be left out.
  void add(std::string what) { lost_.push_back(std::move(what)); }
  /// Throws pp::Error (data) when something is lost that may not be.
  std::vector<std::string> settle(const std::string& trainer) const;

 private:
  Losses rule_;
  std::vector<std::string> lost_;
};

/// One replica of the pipeline: worker w of it holds `stages[w]`, in ascending order, and runs `programs[w]`
/// with the micro-batches that are its own numbered from 0. Workers are in the order of their first stages.
struct Lane {
  std::vector<std::vector<int>> stages{};
  std::vector<Program> programs{};
  std::vector<std::vector<WorkerId>> workers{};  ///< per replica, then per worker of the lane
  int micro_batches = 0;                         ///< of each replica
  int replicas() const { return static_cast<int>(workers.size()); }
};

/// Whether the trainer adds the gradients of weights that several stages share.
enum class Copies { refused, allowed };

/// Throws pp::Error (data) for plans that are not r equal pipelines of whole micro-batches, whose weights are
/// updated otherwise than once per step, or that share weights over stages.
Lane lane_of(const Plan& plan, const std::string& trainer, Copies copies = Copies::refused);

/// Refuses several stages on pipelines of one worker, which the trainer would run as one.
void refuse_lone_chunks(const Plan& plan, const Lane& lane, const std::string& trainer);

/// What of a plan, beside its stages and orders, an export carries; the rest is lost.
struct Carried {
  bool model = false;       ///< all of it, as it is: inputs beside tokens, frozen weights, any type
  bool overlap = true;      ///< all-reduces hide behind the last backward
  bool recomputing = true;  ///< blocks that a profile counts as recomputed (is_checkpointed())
  bool products = false;    ///< of a narrow type
  int predictions = 0;      ///< whose inputs, the second and on, it makes of the first
};
/// The first mixture of experts; null: there is none.
const Layer* mixture_of(const Plan& plan);
/// For trainers to which no mixture is exported.
void refuse_mixture(const Plan& plan, const std::string& trainer);
/// For trainers that shard no weights.
void refuse_shards(const Plan& plan, const std::string& trainer);
void leave_out_unsaid(const Plan& plan, const Lane& lane, const Carried& carried, LossList& lost);

/// Whether the profile of the plan was estimated with the trainer's own recomputation of every block.
bool is_checkpointed(const Plan& plan, std::string_view what = "blocks");
/// Blocks of each stage, its first ones, that the profile has recomputed, as priced arguments say it; else 0.
int first_checkpointed(const Plan& plan);
/// Whether the members of a tensor group split what is between their products along the sequence.
bool splits_sequence(const Plan& plan);

/// The programs of a lane in PyTorch's exchange form, a row per rank.
std::string schedule_csv(const Lane& lane);

/// Per stage the names of its modules, as torch_pipelining writes them. Throws pp::Error (data) in the name of
/// `trainer` where a tensor passes over a stage or no module begins in one; code that goes to the stage before
/// is lost.
std::vector<std::vector<std::string>> stage_modules(const Plan& plan, const std::string& trainer,
                                                    LossList& lost);

/// Adds what runs again to the list, and takes R out of the programs.
void leave_out_recompute(const Plan& plan, Lane& lane, LossList& lost);

/// The module that a layer belongs to: PyTorch's path of it, `layer1.0.conv1`; empty for the root's own code.
std::string module_of(const Layer& layer);

/// Per layer of the model the stage that runs it.
std::vector<int> stage_of_layers(const Plan& plan);

}  // namespace detail

}  // namespace pp::plan

namespace pp::plan::detail {

/// What a README says beside what follows from the plan.
struct TrainerNotes {
  std::string trainer;                    ///< with the release that its options are of
  std::string launch;                     ///< shell lines
  std::vector<std::string> yours;         ///< what a file leaves to its reader
  std::vector<std::string> not_modelled;  ///< by the plan's times and bytes, of this trainer
};

std::string trainer_readme(const Plan& plan, const Lane& lane, const TrainerNotes& notes,
                           const std::vector<std::string>& lost);

/// GPUs of a node that the plan uses, and nodes: what torchrun is told.
struct Processes {
  int per_node = 1, nodes = 1;
};
/// Throws pp::Error (data) in the name of `trainer` where nodes have several numbers of the plan's GPUs, which
/// torchrun cannot start.
Processes processes_of(const Plan& plan, const std::string& trainer);

/// How ranks go through the plan's devices, in ascending order.
enum class RankOrder {
  any,       ///< one replica, or one stage
  replicas,  ///< the replicas of a stage are neighbours: Megatron's and TorchTitan's own order
  pipelines  ///< the stages of a replica are
};
/// Nothing: in another order.
std::optional<RankOrder> rank_order(const Plan& plan, const Lane& lane);

}  // namespace pp::plan::detail

namespace pp::plan {

extern const std::string_view kTorchLauncher;

}  // namespace pp::plan
