// checkpoint_writer FOLDER: a training without a model. Goes on from the newest checkpoint of FOLDER, or
// begins; after steps 4, 8 and 12 it writes one, of a state that follows from the one before. Keeps the newest
// two.
#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>

#include "libprofile/core/error.h"
#include "librun/checkpoint/checkpoint_folder.h"
#include "librun/checkpoint/safetensors.h"

using namespace pp;
using namespace pp::run;

namespace {

Manifest manifest_of(Step step) {
  Manifest manifest;
  manifest.position = {.step = step, .epoch = static_cast<int>(step)};
  manifest.identity = {.model_hash = "m", .dtype = "float32", .optimizer = "sgd", .samples = 8};
  return manifest;
}

void train(const std::filesystem::path& folder) {
  std::optional<Step> resumed;
  std::string state = "the weights!";  // 12 bytes
  if (has_checkpoints(folder)) {
    const FoundCheckpoint found = find_checkpoint(folder);
    const SafetensorsFile file(files_of(found, kWeights));
    state = file.read(*file.find("w"));
    resumed = found.manifest.position.step;
  }
  CheckpointFolder checkpoints(folder, 2, resumed);
  for (Step step = resumed.value_or(0) + 4; step <= 12; step += 4) {
    for (char& c : state) c = static_cast<char>(c * 5 + step);
    Manifest manifest = manifest_of(step);
    manifest.parts = write_parts(folder, step,
                                 {{part_file(kWeights), {{"w", {{3}, DType::float32}, state}}},
                                  {part_file(kOptimizer), {{"w.momentum", {{3}, DType::float32}, state}}}});
    checkpoints.commit(manifest, step);
  }
}

}  // namespace

int main(int /*argc*/, char** argv) {
  try {
    train(argv[1]);
    return 0;
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
