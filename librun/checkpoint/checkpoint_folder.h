// Checkpoints on disk: DIR/step-<n>/ with the files of a training's state and manifest.json. A folder that has
// its name is whole: it is written under another one, flushed and renamed. Free of Torch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "libprofile/core/units.h"
#include "librun/checkpoint/manifest.h"
#include "librun/checkpoint/safetensors.h"
#include "librun/data/records.h"

namespace pp::run {

/// What a checkpoint holds: `weights.safetensors` and `optimizer.safetensors`, or with several writers
/// `weights-0.safetensors`, ...: each wrote what it had.
inline constexpr auto kWeights = "weights";
inline constexpr auto kOptimizer = "optimizer";
inline constexpr auto kManifest = "manifest.json";
std::string part_file(const std::string& content, std::optional<int> writer = std::nullopt);
bool is_part_of(const std::string& file, const std::string& content);

struct PartContent {
  std::string file;
  std::vector<StoredTensor> tensors;
  Metadata metadata = {};
};

/// Writes parts of the checkpoint of `step`, which is not whole before its manifest is there; any number of
/// writers may, each as an `owner` of its own. Throws pp::Error (run); then none of these parts is left, those
/// of other writers stay.
std::vector<CheckpointPart> write_parts(const std::filesystem::path& folder, Step step,
                                        const std::vector<PartContent>& parts, int owner = 0);

/// Where write_parts() puts them.
std::filesystem::path place_of_parts(const std::filesystem::path& folder, Step step);
/// Where the checkpoint of a step lies in a folder.
std::filesystem::path place_of_checkpoint(const std::filesystem::path& folder, Step step);

/// The folder that a training writes its checkpoints to.
class CheckpointFolder {
 public:
  /// Makes the folder, locks it while the object lives, and removes what killed runs have begun there.
  /// `resumed`: the training goes on from a checkpoint, at this step. Checkpoints of this folder that lie
  /// beyond it and are not whole get another name; whole ones, or any when nothing is resumed, are refused,
  /// because the new ones would mix with them. Throws pp::Error (usage) with the remedy, also where another run
  /// keeps the lock for longer than `patience` and where nothing can be written. `option`: which gave the
  /// folder.
  CheckpointFolder(std::filesystem::path folder, int keep, std::optional<Step> resumed,
                   const std::string& option = "--checkpoint", Seconds patience = kDying);
  /// A killed process is gone by then. A file server keeps the lock of a host that died for its lease.
  static constexpr Seconds kDying{10}, kLease{120};

  const std::filesystem::path& path() const { return folder_; }

  /// Makes a checkpoint of what write_parts() wrote, and removes the oldest ones beyond those to be kept, but
  /// for that of step `best`.
  /// Returns its bytes. Throws pp::Error: what is there stays as it is; kind run where it cannot be written,
  /// data where parts are not in the folder. `step`: given to write_parts().
  std::int64_t commit(const Manifest& manifest, Step step, std::optional<Step> best = std::nullopt);
  /// Removes what all writers' write_parts() wrote.
  void discard(Step step);

 private:
  class Lock;

  std::filesystem::path folder_;
  int keep_;
  std::shared_ptr<const Lock> lock_;
};

struct FoundCheckpoint {
  std::filesystem::path folder;
  Manifest manifest;
  std::vector<std::string> skipped;  ///< newer ones that are not whole, each with the reason
  ReadFiles read = {};               ///< parts whose bytes were kept as they were checked
};

/// Whether `folder` is there and has checkpoints, whole or not, or is one. Throws pp::Error (usage) where it
/// cannot be looked into.
bool has_checkpoints(const std::filesystem::path& folder);

/// Those of `folder`, whole or not, newest first, or `folder` itself when it is one. Throws pp::Error (usage)
/// where it cannot be looked into.
std::vector<std::filesystem::path> checkpoints_of(const std::filesystem::path& folder);

/// By the name of its folder; 0 for another name.
Step step_of_checkpoint(const std::filesystem::path& checkpoint);

/// A process that looks for a checkpoint, maybe with others, which do the same at the same time: it reads the
/// parts whose owner is its own rank, modulo the number of ranks.
struct CheckpointReader {
  int rank = 0;
  int ranks = 1;
  /// Given why this rank cannot go on from a checkpoint (empty: it can), returns what all ranks take for it.
  std::function<std::string(const std::string&)> agree = [](const std::string& mine) { return mine; };
  bool keep = false;  ///< the bytes of the parts that it reads, in memory
  /// How long a checkpoint may take to appear that another process has seen: hosts cache the directories of a
  /// file server.
  Seconds patience{};
};

/// The newest checkpoint of `folder` whose files have their sizes and checksums, or `folder` itself when it is
/// one. Reads every byte of the reader's parts, of plain files only. Throws pp::Error (data) when there is
/// none.
FoundCheckpoint find_checkpoint(const std::filesystem::path& folder, const CheckpointReader& reader = {});
/// The same among these checkpoints; one may be `folder` itself.
FoundCheckpoint find_checkpoint(const std::vector<std::filesystem::path>& newest_first,
                                const std::filesystem::path& folder, const CheckpointReader& reader);

/// Its files that hold `content`, kWeights or kOptimizer. Throws pp::Error (data) where there are none.
std::vector<std::filesystem::path> files_of(const FoundCheckpoint& checkpoint, const std::string& content);

}  // namespace pp::run
