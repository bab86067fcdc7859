#include "librun/control/checkpointer.h"

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

/// All that a training goes on from, in model order.
struct TrainingState {
  NamedTensors tensors;
  NamedTensors optimizer;
};

TrainingState merged(const std::vector<Stage::LayerState>& layers) {
  TrainingState state;
  for (const Stage::LayerState& layer : layers) {
    std::ranges::copy(layer.tensors, std::back_inserter(state.tensors));
    std::ranges::copy(layer.optimizer, std::back_inserter(state.optimizer));
  }
  return state;
}

}  // namespace

SavedFiles::SavedFiles(const RunOptions& options, DType dtype, const Setup& setup) {
  if (setup.placement.rank != 0) return;
  const Start& start = setup.start;
  if (!start.weights.empty()) {
    const SafetensorsFile file(start.weights, start.read);
    further = further_state(file);
    kept = read_weights(file, [&](const std::string& name) {
      const auto found = further.find(name);
      return found != further.end() && found->second == "kept";
    });
    for (auto& [name, tensor] : kept) tensor = tensor.clone();
  }
  const std::vector<ModelTensor> saved = saved_tensors(model_tensors(setup.model, dtype), further, kept);
  std::optional<Step> resumed;
  if (!start.resumed.empty()) resumed = start.position.step;
  if (!options.save_weights.empty()) weights.emplace(options.save_weights, saved, options.shard_bytes);
  if (options.checkpoint.empty()) return;
  // A training that goes on may find the lock of the start before it.
  const Seconds lease = std::min(CheckpointFolder::kLease, 5 * options.stall_timeout);
  folder.emplace(
      options.checkpoint, options.checkpoints_kept, resumed, "--checkpoint",
      goes_on_from_own(options) ? std::max(lease, CheckpointFolder::kDying) : CheckpointFolder::kDying);
}

// A rank among others does not know whether its last part has become a checkpoint: it writes each.
bool Checkpointer::writes(Step step) const {
  return !options_.checkpoint.empty() &&
         step > (setup_.placement.alone() ? saved_ : setup_.start.position.step);
}

CheckpointShare Checkpointer::write_share(Snapshot snapshot) {
  writing_since_ = Coordinator::Clock::now();
  const auto [step, last] = snapshot.key;
  CheckpointShare share{.step = step, .last = last, .pause = snapshot.pause};
  if (writes(step)) {
    const bool alone = setup_.placement.alone();
    std::optional<int> writer;
    if (!alone) writer = setup_.placement.rank;
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
        std::ranges::copy(files_->kept, std::back_inserter(state.tensors));
        share.parts = write_parts(options_.checkpoint, share.step,
                                  {{part_file(kWeights, writer), stored(state.tensors), files_->further},
                                   {part_file(kOptimizer, writer), stored(state.optimizer)}},
                                  setup_.placement.rank);
      });
    } catch (const std::bad_alloc&) {
      note(kNoMemory);
    }
  }
  if (last && !options_.save_weights.empty() && !options_.keep_best) share.layers = std::move(snapshot.layers);
  return share;
}

void Checkpointer::save(const Position& position, std::vector<CheckpointShare> shares) {
  Manifest manifest = describe(plan_, options_, setup_, position);
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
  if (wanted) attempt([&] { commit(manifest, shares); }, no_checkpoint);
  if (files_->weights && shares.front().last) {
    attempt(
        [&] {
          if (options_.keep_best) return write_best(position);
          std::ranges::sort(layers, {}, &Stage::LayerState::layer);
          write_weights(position.step, merged(layers).tensors);
        },
        [&](const std::string& why) { return "the trained weights are lost: " + why + "; " + last_whole(); });
  }
}

void Checkpointer::write_weights(Step step, NamedTensors tensors) {
  std::ranges::copy(files_->kept, std::back_inserter(tensors));
  for (const auto& [name, what] : files_->further) {
    if (what == "steps") tensors.emplace_back(name, at::scalar_tensor(step, at::kLong));
    const auto of = std::ranges::find(tensors, same_as(what), &NamedTensors::value_type::first);
    if (!same_as(what).empty()) tensors.emplace_back(name, of->second);
  }
  files_->weights->write(stored(tensors), files_->further);
}

// Before any evaluation with a loss the last one is the best.
void Checkpointer::write_best(const Position& position) {
  const bool found = position.evaluated && position.evaluated->best_step > 0;
  const Step step = found ? position.evaluated->best_step : position.step;
  try {
    const FoundCheckpoint best = find_checkpoint(place_of_checkpoint(files_->folder->path(), step));
    const SafetensorsFile file(files_of(best, kWeights), best.read);
    write_weights(step, read_weights(file, [](const std::string&) { return true; }));
  } catch (const Error& error) {
    throw Error(ErrorKind::run, error.what());
  }
}

void Checkpointer::commit(const Manifest& manifest, const std::vector<CheckpointShare>& shares) {
  const Step step = shares.front().step;
  if (manifest.position.step <= saved_) return files_->folder->discard(step);
  for (const CheckpointShare& share : shares) {
    if (share.failure.empty()) continue;
    files_->folder->discard(step);
    throw Error(ErrorKind::run, share.failure);
  }
  std::optional<Step> best;
  if (options_.keep_best && manifest.position.evaluated) best = manifest.position.evaluated->best_step;
  size_ = Bytes(files_->folder->commit(manifest, step, best));
  saved_ = manifest.position.step;
  pauses_.add(std::ranges::max(shares, {}, &CheckpointShare::pause).pause);
  writes_.add(Coordinator::Clock::now() - writing_since_);
}

std::string Checkpointer::last_whole() const {
  const bool here = files_->folder && saved_ > setup_.start.position.step;
  if (!here && setup_.start.resumed.empty()) return "there is no checkpoint to go on from";
  const std::string folder = here ? files_->folder->path().string() : setup_.start.resumed.string();
  return "the last whole checkpoint is of step " + std::to_string(saved_) + ": --resume " + folder +
         " goes on from it";
}

std::optional<CheckpointsReport> Checkpointer::report() const {
  if (!files_->folder) return std::nullopt;
  return CheckpointsReport{writes_.count(), size_, pauses_.median(), writes_.median(), {}};
}

}  // namespace pp::run
