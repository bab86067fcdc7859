// What stands in a checkpoint beside its tensors (document pp.checkpoint): where the training was, how it was
// set up, and the files with their checksums. Free of Torch.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "libprofile/core/fields.h"
#include "librun/options/position.h"
#include "librun/options/settings.h"

namespace pp::run {

/// What must be the same for a training to go on at a position of the data.
struct TrainingIdentity {
  std::string model_hash;
  std::string dtype;
  std::string optimizer;
  std::int64_t samples = 0;  ///< of an epoch
  std::int64_t mini_batch = 1;
  Step steps_per_epoch = 1;
  bool operator==(const TrainingIdentity&) const = default;
};

struct CheckpointPart {
  std::string file;  ///< in the checkpoint's folder
  std::int64_t bytes = 0;
  std::string hash;  ///< ContentHash
  int owner = 0;     ///< the rank that wrote it
  bool operator==(const CheckpointPart&) const = default;
};

/// Neither stages nor replicas nor the schedule appear: any plan of the model can go on from it.
struct Manifest {
  Position position;
  TrainingIdentity identity;
  std::uint64_t seed = 0;
  std::int64_t micro_batches = 1;
  std::string plan_hash;          ///< of the plan that wrote it, for information
  std::string kernels = "usual";  ///< name_of_kernels() of the plan; others round otherwise
  Settings settings;              ///< the training options, as in the report
  std::vector<CheckpointPart> parts;
  bool operator==(const Manifest&) const = default;
};

Keys manifest_keys();
Json to_json(const Manifest& manifest);
/// Of version 1, too, which names no owners: its parts are spread over the ranks in their order. Throws
/// pp::Error (data); also for a position that contradicts itself, and for a file name with a folder in it.
Manifest parse_manifest(std::string_view text);

/// Throws pp::Error (data) that names the first thing that differs, both values and the remedy.
void check_identity(const TrainingIdentity& found, const TrainingIdentity& wanted);

/// What else differs, so that the training that goes on is not, bit for bit, the one that was begun: `seed 7
/// (was 1)`. How long it is and what it writes does not count.
std::vector<std::string> differences(const Manifest& was, const Manifest& is);

}  // namespace pp::run
