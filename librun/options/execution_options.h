// What training and inference are told alike. Free of Torch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "libplan/plan.h"
#include "librun/options/settings.h"

namespace pp::run {

struct ExecutionOptions {
  std::string data;           ///< `synthetic`, or a folder or file that data/formats.h knows
  std::string data_format;    ///< where the names of the files leave it open
  std::string token_type;     ///< uint8, uint16 or uint32: the data are tokens
  std::string target_column;  ///< of a CSV file; empty: the last one
  /// Samples of synthetic data; in training per epoch.
  int synthetic_samples = 1024;
  /// Of synthetic data: turns of their rule per sample, so that they are a stream that a trainer must follow;
  /// neighbours are alike then.
  double synthetic_drift = 0;
  /// Multiplies floating inputs of files; default: integers by 1/(maximum of their type).
  std::optional<double> scale;
  /// Forwards run under LibTorch's autocast to this type; nothing: as the plan says.
  std::optional<Autocast> autocast;
  std::uint64_t seed = 1;
  std::filesystem::path initial_weights;  ///< safetensors, or a checkpoint's folder; empty: drawn from the seed
  bool ignore_unknown_weights = false;    ///< initial weights that the model does not have
  /// Drawn weights are meant, also of a model that was imported with its own and of frozen parameters.
  bool random_weights = false;
  std::optional<Bytes> memory_limit;  ///< of each worker's tensors; a worker that needs more ends the run
  Seconds stall_timeout{60};          ///< a worker that waits this long is reported as stalled
  /// Tests only: called inside the worker before this operation of this step (-1: of an evaluation or an
  /// inference); may throw.
  std::function<void(std::int64_t step, WorkerId worker, const plan::Op& op)> before_op;
};

/// What reports and checkpoints say of them; without the weights' file.
Settings settings_of(const ExecutionOptions& options);

}  // namespace pp::run
