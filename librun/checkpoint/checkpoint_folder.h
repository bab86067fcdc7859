// Checkpoints on disk: DIR/step-<n>/ with the files of a training's state and manifest.json. A folder that has
// its name is whole: it is written under another one, flushed and renamed. Free of Torch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "librun/checkpoint/manifest.h"
#include "librun/checkpoint/safetensors.h"

namespace pp::run {

struct PartContent {
  std::string file;
  std::vector<StoredTensor> tensors;
};

/// The folder that a training writes its checkpoints to.
class CheckpointFolder {
 public:
  /// Makes the folder and removes what killed runs have begun there. `resumed`: the training goes on from a
  /// checkpoint, at this step. Checkpoints of this folder that lie beyond it and are not whole get another
  /// name; whole ones, or any when nothing is resumed, are refused, because the new ones would mix with them.
  /// Throws pp::Error (usage) with the remedy.
  CheckpointFolder(std::filesystem::path folder, int keep, std::optional<Step> resumed);

  /// Writes `manifest` (its parts are filled in) and the parts, and removes the oldest checkpoints beyond those
  /// to be kept. Returns its bytes. Throws pp::Error (run): what is there stays as it is.
  std::int64_t write(Manifest manifest, const std::vector<PartContent>& parts);

 private:
  std::filesystem::path folder_;
  int keep_;
};

struct FoundCheckpoint {
  std::filesystem::path folder;
  Manifest manifest;
  std::vector<std::string> skipped;  ///< newer ones that are not whole, each with the reason
};

/// The newest checkpoint of `folder` whose files have their sizes and checksums, or `folder` itself when it is
/// one. Reads every byte of it. Throws pp::Error (data) when there is none.
FoundCheckpoint find_checkpoint(const std::filesystem::path& folder);

}  // namespace pp::run
