#include "librun/drive/saver.h"

#include <utility>

#include "libprofile/core/error.h"
#include "librun/setup/start.h"

namespace pp::run {

Saver::Saver(const RunOptions& options, const Start& start) : saved_(start.position.step) {
  if (!options.save_weights.empty()) weights_.emplace(options.save_weights);
  if (options.checkpoint.empty()) return;
  std::optional<Step> resumed;
  if (!start.resumed.empty()) resumed = start.position.step;
  folder_.emplace(options.checkpoint, options.checkpoints_kept, resumed);
}

void Saver::save(const Job& job, Snapshot snapshot) {
  const TrainingState state = merged(std::move(snapshot.layers));
  if (folder_ && snapshot.position.step > saved_) checkpoint(job, snapshot, state);
  if (!weights_ || !snapshot.last) return;
  write_safetensors(stored(state.tensors), [&](std::string_view bytes) { weights_->write(bytes); });
  weights_->commit();
}

void Saver::checkpoint(const Job& job, const Snapshot& snapshot, const TrainingState& state) {
  const auto begin = Coordinator::Clock::now();
  try {
    size_ = Bytes(
        folder_->write(describe(job.plan, job.options, job.setup, snapshot.position),
                       {{kWeightsFile, stored(state.tensors)}, {kOptimizerFile, stored(state.optimizer)}}));
  } catch (const Error& error) {
    const std::string last = saved_ > 0 ? "; the last whole checkpoint is of step " + std::to_string(saved_) +
                                              ": make room and go on from it with --resume " +
                                              job.options.checkpoint.string()
                                        : "; make room for it and begin again";
    throw Error(ErrorKind::run,
                "checkpoint of step " + std::to_string(snapshot.position.step) + ": " + error.what() + last);
  }
  saved_ = snapshot.position.step;
  pauses_.add(snapshot.pause);
  writes_.add(Coordinator::Clock::now() - begin);
}

std::optional<CheckpointsReport> Saver::report() const {
  if (!folder_) return std::nullopt;
  return CheckpointsReport{writes_.count(), size_, pauses_.median(), writes_.median()};
}

}  // namespace pp::run
