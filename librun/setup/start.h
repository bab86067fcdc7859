// Where a training begins: at step 0 with weights that are drawn or given, or at a checkpoint.
#pragma once

#include "librun/checkpoint/checkpoint_folder.h"
#include "librun/options/run_options.h"
#include "librun/setup/setup.h"

namespace pp::run {

/// What the run was asked for, as reports and checkpoints carry it.
Settings settings_of(const plan::Plan& plan, const RunOptions& options, const Length& length);

/// Of a checkpoint at `position`; its parts are left open.
Manifest describe(const plan::Plan& plan, const RunOptions& options, const Setup& setup,
                  const Position& position);

/// Whether the training goes on from a checkpoint: a job that is started again says --resume each time, and has
/// none at first. Throws pp::Error (usage).
bool resumes(const RunOptions& options);

/// Whether --resume names the folder of --checkpoint.
bool goes_on_from_own(const RunOptions& options);

/// A checkpoint of --resume's folder, whole or not, by its name there; none: it is the folder.
struct Resumable {
  Step step = 0;
  std::string name;
  bool operator==(const Resumable&) const = default;
};
/// Those that this process sees. Throws pp::Error (usage) where a folder cannot be looked into.
std::vector<Resumable> resumables(const RunOptions& options);

/// The newest one that is whole. Throws as find_checkpoint().
FoundCheckpoint find_resumed(const RunOptions& options, std::vector<Resumable> all,
                             const CheckpointReader& reader);

/// From --resume or --initial-weights, whose tensors are checked against the model by name and shape. `setup`
/// has model and length. `found`: the checkpoint, where it has been looked for; else reads all bytes of it,
/// which the start keeps. Throws pp::Error (data, usage).
Start find_start(const plan::Plan& plan, const RunOptions& options, const Setup& setup,
                 const std::optional<FoundCheckpoint>& found = std::nullopt);

/// Weights that were asked for, checked against the model by name and shape.
struct GivenWeights {
  std::vector<std::filesystem::path> files;  ///< with its parts
  std::vector<std::string> missing;          ///< tensors of the model that they do not have
};
/// What --initial-weights names (checkpoint/weight_files.h). Throws pp::Error (data).
GivenWeights find_weights(const ResolvedModel& model, DType dtype, const ExecutionOptions& options);

/// The first of them in a sentence.
std::string list_of(const std::vector<std::string>& names);

/// Updates from checkpoint to checkpoint, 0 when the clock decides or there are none. Throws pp::Error (usage).
Step snapshot_interval(const RunOptions& options, const Setup& setup);

}  // namespace pp::run
