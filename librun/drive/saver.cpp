#include "librun/drive/saver.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "libprofile/core/error.h"
#include "librun/setup/start.h"

namespace pp::run {

Saver::Saver(const RunOptions& options, const Setup& setup)
    : written_(setup.start.position.step), saved_(written_) {
  if (setup.placement.rank != 0) return;
  if (!options.save_weights.empty()) weights_.emplace(options.save_weights);
  if (options.checkpoint.empty()) return;
  std::optional<Step> resumed;
  if (!setup.start.resumed.empty()) resumed = setup.start.position.step;
  folder_.emplace(options.checkpoint, options.checkpoints_kept, resumed);
}

template <class Body>
void Saver::with_remedy(const Job& job, Step step, Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    const std::string last = saved_ > 0 ? "; the last whole checkpoint is of step " + std::to_string(saved_) +
                                              ": make room and go on from it with --resume " +
                                              job.options.checkpoint.string()
                                        : "; make room for it and begin again";
    throw Error(ErrorKind::run, "checkpoint of step " + std::to_string(step) + ": " + error.what() + last);
  }
}

Share Saver::write_share(const Job& job, Snapshot snapshot) {
  begun_ = Coordinator::Clock::now();
  Share share{.step = snapshot.step, .last = snapshot.last, .pause = snapshot.pause};
  if (!job.options.checkpoint.empty() && snapshot.step > written_) {
    const TrainingState state = merged(snapshot.layers);
    std::optional<int> writer;
    if (!job.setup.placement.alone()) writer = job.setup.placement.rank;
    with_remedy(job, snapshot.step, [&] {
      share.parts = write_parts(job.options.checkpoint, snapshot.step,
                                {{part_file(kWeights, writer), stored(state.tensors)},
                                 {part_file(kOptimizer, writer), stored(state.optimizer)}});
    });
    written_ = snapshot.step;
  }
  if (snapshot.last && !job.options.save_weights.empty()) share.layers = std::move(snapshot.layers);
  return share;
}

void Saver::save(const Job& job, const Position& position, std::vector<Share> shares) {
  Manifest manifest = describe(job.plan, job.options, job.setup, position);
  std::vector<Stage::LayerState> layers;
  for (Share& share : shares) {
    std::ranges::move(share.parts, std::back_inserter(manifest.parts));
    std::ranges::move(share.layers, std::back_inserter(layers));
  }
  if (!manifest.parts.empty()) with_remedy(job, position.step, [&] { commit(manifest, shares); });
  if (!weights_ || !shares.front().last) return;
  std::ranges::sort(layers, {}, &Stage::LayerState::layer);
  const TrainingState state = merged(layers);
  write_safetensors(stored(state.tensors), [&](std::string_view bytes) { weights_->write(bytes); });
  weights_->commit();
}

void Saver::commit(const Manifest& manifest, const std::vector<Share>& shares) {
  const Step step = shares.front().step;
  if (manifest.position.step <= saved_) return folder_->discard(step);
  size_ = Bytes(folder_->commit(manifest, step));
  saved_ = manifest.position.step;
  pauses_.add(std::ranges::max(shares, {}, &Share::pause).pause);
  writes_.add(Coordinator::Clock::now() - begun_);
}

std::optional<CheckpointsReport> Saver::report() const {
  if (!folder_) return std::nullopt;
  return CheckpointsReport{writes_.count(), size_, pauses_.median(), writes_.median()};
}

}  // namespace pp::run
