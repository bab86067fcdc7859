// Which samples make which mini-batch: the shuffled order of an epoch and its cut into mini-batches and
// micro-batches. Depends on nothing but its arguments, never on the plan's stages. Free of Torch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "librun/options/position.h"

namespace pp::run {

/// Uniform in 0..bound-1, by splitmix64: draws in the incomplete last interval are thrown away.
std::uint64_t draw_below(std::uint64_t bound, std::uint64_t& state);

/// The samples 0..samples-1 in the order of one epoch: Fisher-Yates with splitmix64 keyed by (seed, epoch), or
/// ascending when `shuffle` is false. O(samples).
std::vector<std::int64_t> epoch_order(std::int64_t samples, std::uint64_t seed, int epoch, bool shuffle);

/// How an epoch falls into mini-batches, these into micro-batches, and which of them make a step.
struct EpochShape {
  std::int64_t samples = 0;
  int mini_batch = 1;
  int micro_batches = 1;
  std::int64_t count = 0;  ///< mini-batches in an epoch
  int accumulate = 1;      ///< mini-batches of a step; the last step of an epoch has those that are left
  bool operator==(const EpochShape&) const = default;

  /// Samples of mini-batch `index`: mini_batch, or what is left for the last one.
  int size(std::int64_t index) const;
  /// First sample of mini-batch `index` within the epoch's order.
  std::int64_t first(std::int64_t index) const { return index * mini_batch; }

  /// Steps in an epoch, which count from 0 in it below.
  Step steps() const { return (count + accumulate - 1) / accumulate; }
  /// The first mini-batch of a step; of steps(): behind the last one.
  std::int64_t begin(Step step) const { return std::min(step * accumulate, count); }
  /// Samples of a step.
  int step_size(Step step) const;
  /// Samples of each micro-batch of a step, by the tensor_split rule within each mini-batch.
  std::vector<int> step_sizes(Step step) const;
};

struct EpochRequest {
  std::int64_t samples = 0;
  int mini_batch = 1;
  int micro_batches = 1;
  bool drop_last = false;  ///< leave out a last mini-batch with fewer samples than micro-batches
  /// Streams: the number of mini-batches must be a multiple of this; drop_last leaves out what is over.
  int round = 1;
  int round_stage = 0;             ///< the stage with that many replicas, for the message
  std::string_view schedule = {};  ///< its name, for the message
  std::string_view source;         ///< where the samples come from, for messages
};

/// Throws pp::Error (data) when the mini-batch exceeds the samples, when the last mini-batch cannot be cut into
/// micro-batches, or when a stream's rounds do not come out even; each with its remedy.
EpochShape epoch_shape(const EpochRequest& request);

}  // namespace pp::run
