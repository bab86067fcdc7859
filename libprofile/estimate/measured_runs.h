// Measured training steps, from which a device's figures are fitted: rows of a CSV file, how far predictions
// are from them, and the random halves that fits are judged by.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "libprofile/core/link.h"
#include "libprofile/core/profile.h"
#include "libprofile/core/tensor_type.h"
#include "libprofile/core/units.h"

namespace pp::profile {

/// A step of 1F1B (or, with one stage, of gradient accumulation) in equal stages of whole blocks.
struct MeasuredRun {
  std::string model = {};  ///< as `pp-profile estimate` takes it
  int micro_batch = 1;     ///< samples
  int micro_batches = 1;   ///< of one replica
  int stages = 1;
  int replicas = 1;
  int tensor_degree = 1, context_degree = 1;
  ShardGroup shard_group = {};  ///< of the replicas
  int chunks = 1;               ///< stages of a device, interleaved
  /// Nodes of so many devices, each with `cards` network cards; without a card all devices are of one node.
  int node = 8, cards = 1;
  Link card = {};
  BytesPerSecond link{0};  ///< within a node; 0: that of the device's tensor_link
  bool sequence_parallel = true;
  bool recompute = false;           ///< every block runs its forward again in its backward
  std::string precision = "plain";  ///< of weights, gradients and state, as --precision of pp-plan
  bool sharded = false;             ///< replicas share the optimizer's state
  std::string trainer = {};         ///< as --trainer takes it; empty: the usual one
  RunType dtype = DType::bfloat16;
  Seconds step{};
  std::optional<Bytes> peak = std::nullopt;  ///< of the fullest device
  int line = 0;                              ///< of the file
  bool operator==(const MeasuredRun&) const = default;
};

/// RFC 4180 with a header line: columns model, micro_batch, micro_batches, stages, replicas, tensor, context,
/// shards, sharding, chunks, sequence_parallel, recompute, dtype, precision, sharded, trainer, node, cards,
/// card_bytes_per_s, card_latency_s, link_bytes_per_s, step_s, peak_bytes, ran in any order; all but model,
/// micro_batch, micro_batches and step_s may be missing. Empty lines, lines that begin with # and runs that ran
/// out of memory (ran: 0) are skipped. Throws pp::Error (data): line, column, value and what is allowed.
std::vector<MeasuredRun> parse_measured_runs(std::string_view text);

/// Means and median of |predicted / measured - 1| and of predicted / measured - 1.
struct FitError {
  double mean = 0, median = 0, signed_mean = 0;
  int runs = 0;
};

/// `ratios`: predicted / measured of each run. All zero without runs. O(runs log runs).
FitError fit_error(const std::vector<double>& ratios);

/// The positions 0 .. count - 1 in two halves, in random order; of an odd number the first has one more. The
/// same seed gives the same halves on every machine.
std::pair<std::vector<std::size_t>, std::vector<std::size_t>> random_halves(std::size_t count, unsigned seed);

}  // namespace pp::profile
