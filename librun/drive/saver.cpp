#include "librun/drive/saver.h"

#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <iterator>
#include <new>
#include <utility>

#include "libprofile/core/error.h"
#include "librun/checkpoint/model_tensors.h"
#include "librun/setup/start.h"

namespace pp::run {

namespace {

constexpr auto kNoMemory = "the host has no memory left";

/// The names in a file of weights: the model's, and those of `further` that come from it.
std::vector<ModelTensor> saved_tensors(std::vector<ModelTensor> tensors, Metadata& further,
                                       const NamedTensors& kept) {
  const std::size_t own = tensors.size();
  for (const auto& [name, tensor] : kept)
    tensors.push_back({name, stored({{name, tensor}}).front().type, false});
  std::erase_if(further, [&](const auto& entry) {
    const auto& [name, what] = entry;
    if (what == "steps") tensors.push_back({name, {{}, DType::int64}, false});
    const auto model = std::span(tensors).first(own);
    const auto of = std::ranges::find(model, same_as(what), &ModelTensor::name);
    if (same_as(what).empty()) return false;
    if (of == model.end()) return true;
    tensors.push_back({name, TensorType(of->type), false});
    return false;
  });
  return tensors;
}

}  // namespace

Saver::Saver(const RunOptions& options, DType dtype, const Setup& setup)
    : start_(setup.start), saved_(start_.position.step) {
  if (setup.placement.rank == 0 && !start_.weights.empty()) {
    const SafetensorsFile file(start_.weights, start_.read);
    further_ = further_state(file);
    kept_ = read_weights(file, [&](const std::string& name) {
      const auto found = further_.find(name);
      return found != further_.end() && found->second == "kept";
    });
    for (auto& [name, tensor] : kept_) tensor = tensor.clone();
  }
  const std::vector<ModelTensor> saved = saved_tensors(model_tensors(setup.model, dtype), further_, kept_);
  start_.read.clear();  // the job gives that memory back
  std::optional<Step> resumed;
  if (!start_.resumed.empty()) resumed = start_.position.step;
  if (setup.placement.rank != 0) return;
  if (!options.save_weights.empty()) {
    weights_.emplace(options.save_weights, saved, options.shard_bytes);
  }
  if (options.checkpoint.empty()) return;
  // A training that goes on may find the lock of the start before it.
  const Seconds lease = std::min(CheckpointFolder::kLease, 5 * options.stall_timeout);
  folder_.emplace(
      options.checkpoint, options.checkpoints_kept, resumed, "--checkpoint",
      goes_on_from_own(options) ? std::max(lease, CheckpointFolder::kDying) : CheckpointFolder::kDying);
}

// A rank among others does not know whether its last part has become a checkpoint: it writes each.
bool Saver::writes(const Job& job, Step step) const {
  const bool alone = job.setup.placement.alone();
  return !job.options.checkpoint.empty() && step > (alone ? saved_ : start_.position.step);
}

CheckpointShare Saver::write_share(const Job& job, Snapshot snapshot) {
  begun_ = Coordinator::Clock::now();
  CheckpointShare share{.step = snapshot.step, .last = snapshot.last, .pause = snapshot.pause};
  if (writes(job, snapshot.step)) {
    const bool alone = job.setup.placement.alone();
    std::optional<int> writer;
    if (!alone) writer = job.setup.placement.rank;
    const auto note = [&](const std::string& why) {
      share.failure = (alone ? "" : "rank " + std::to_string(*writer) + ": ") + why;
    };
    const auto attempt = [&](auto&& write) {
      try {
        write();
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::run) throw;
        note(error.what());
      }
    };
    try {
      attempt([&] {
        TrainingState state = merged(snapshot.layers);
        std::ranges::copy(kept_, std::back_inserter(state.tensors));
        share.parts = write_parts(job.options.checkpoint, snapshot.step,
                                  {{part_file(kWeights, writer), stored(state.tensors), further_},
                                   {part_file(kOptimizer, writer), stored(state.optimizer)}},
                                  job.setup.placement.rank);
      });
    } catch (const std::bad_alloc&) {
      note(kNoMemory);
    }
  }
  if (snapshot.last && !job.options.save_weights.empty() && !job.options.keep_best)
    share.layers = std::move(snapshot.layers);
  return share;
}

std::vector<std::string> Saver::failures() const {
  const std::lock_guard held(mutex_);
  return failures_;
}

void Saver::fail(std::string why) {
  const std::lock_guard held(mutex_);
  failures_.push_back(std::move(why));
}

void Saver::save(const Job& job, const Position& position, std::vector<CheckpointShare> shares) {
  Manifest manifest = describe(job.plan, job.options, job.setup, position);
  std::vector<Stage::LayerState> layers;
  bool wanted = false;
  for (CheckpointShare& share : shares) {
    wanted = wanted || !share.parts.empty() || !share.failure.empty();
    std::ranges::move(share.parts, std::back_inserter(manifest.parts));
    std::ranges::move(share.layers, std::back_inserter(layers));
  }
  const auto attempt = [&](auto&& write, auto&& words) {
    try {
      write();
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::data) throw Error(ErrorKind::run, words(error.what()));
      if (error.kind() != ErrorKind::run) throw;
      fail(words(error.what()));
    } catch (const std::bad_alloc&) {
      fail(words(kNoMemory));
    }
  };
  const auto no_checkpoint = [&](const std::string& why) {
    return "checkpoint of step " + std::to_string(position.step) + ": " + why + "; make room, " + last_whole();
  };
  if (wanted) attempt([&] { commit(job, manifest, shares); }, no_checkpoint);
  if (weights_ && shares.front().last) {
    attempt(
        [&] {
          if (job.options.keep_best) return write_best(position);
          std::ranges::sort(layers, {}, &Stage::LayerState::layer);
          write_weights(position.step, merged(layers).tensors);
        },
        [&](const std::string& why) { return "the trained weights are lost: " + why + "; " + last_whole(); });
  }
}

void Saver::write_weights(Step step, NamedTensors tensors) {
  std::ranges::copy(kept_, std::back_inserter(tensors));
  for (const auto& [name, what] : further_) {
    if (what == "steps") tensors.emplace_back(name, at::scalar_tensor(step, at::kLong));
    const auto of = std::ranges::find(tensors, same_as(what), &NamedTensors::value_type::first);
    if (!same_as(what).empty()) tensors.emplace_back(name, of->second);
  }
  weights_->write(stored(tensors), further_);
}

// Before any evaluation with a loss the last one is the best.
void Saver::write_best(const Position& position) {
  const bool found = position.evaluated && position.evaluated->best_step > 0;
  const Step step = found ? position.evaluated->best_step : position.step;
  try {
    const FoundCheckpoint best = find_checkpoint(place_of_checkpoint(folder_->path(), step));
    const SafetensorsFile file(files_of(best, kWeights), best.read);
    write_weights(step, read_weights(file, [](const std::string&) { return true; }));
  } catch (const Error& error) {
    throw Error(ErrorKind::run, error.what());
  }
}

void Saver::commit(const Job& job, const Manifest& manifest, const std::vector<CheckpointShare>& shares) {
  const Step step = shares.front().step;
  if (manifest.position.step <= saved_) return folder_->discard(step);
  for (const CheckpointShare& share : shares) {
    if (share.failure.empty()) continue;
    folder_->discard(step);
    throw Error(ErrorKind::run, share.failure);
  }
  std::optional<Step> best;
  if (job.options.keep_best && manifest.position.evaluated) best = manifest.position.evaluated->best_step;
  size_ = Bytes(folder_->commit(manifest, step, best));
  saved_ = manifest.position.step;
  pauses_.add(std::ranges::max(shares, {}, &CheckpointShare::pause).pause);
  writes_.add(Coordinator::Clock::now() - begun_);
}

std::string Saver::last_whole() const {
  const bool here = folder_ && saved_ > start_.position.step;
  if (!here && start_.resumed.empty()) return "there is no checkpoint to go on from";
  const std::string folder = here ? folder_->path().string() : start_.resumed.string();
  return "the last whole checkpoint is of step " + std::to_string(saved_) + ": --resume " + folder +
         " goes on from it";
}

std::optional<CheckpointsReport> Saver::report() const {
  if (!folder_) return std::nullopt;
  return CheckpointsReport{writes_.count(), size_, pauses_.median(), writes_.median(), {}};
}

}  // namespace pp::run
