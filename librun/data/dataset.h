// What micro-batches are cut from.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "librun/data/formats.h"

namespace pp::run {

/// A training or test set. Read-only, by any number of threads at once.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual const std::string& source() const = 0;  ///< for messages
  virtual std::int64_t samples() const = 0;
  /// Whether rows() only copies memory.
  virtual bool in_memory() const = 0;
  /// Whether rows are the same whenever they are asked for, so that they may be read ahead.
  virtual bool fixed() const { return true; }
  /// The rows `samples` of the input or target that `source` names: [n, shape...], dense, a new tensor on the
  /// CPU, gathered by as many threads as the caller has; `pinned`: in memory that a CUDA device reads at the
  /// full rate of its bus. Throws pp::Error (data) when they cannot be read.
  virtual at::Tensor rows(const TensorSource& source, std::span<const std::int64_t> samples,
                          bool pinned) const = 0;
  at::Tensor rows(const TensorSource& source, std::span<const std::int64_t> samples) const {
    return rows(source, samples, /*pinned=*/false);
  }
};

/// Tensors of all samples.
class MemoryDataset final : public Dataset {
 public:
  struct Column {
    at::Tensor values;                 ///< [samples, shape...]
    at::ScalarType type = at::kFloat;  ///< of the micro-batches
  };
  std::vector<Column> inputs;   ///< in the order of the model's inputs
  std::vector<Column> targets;  ///< in the order of the model's targets
  std::string name;
  std::int64_t sample_count = 0;

  const std::string& source() const override { return name; }
  std::int64_t samples() const override { return sample_count; }
  bool in_memory() const override { return true; }
  using Dataset::rows;
  at::Tensor rows(const TensorSource& source, std::span<const std::int64_t> samples,
                  bool pinned) const override;
};

struct TensorOptions {
  DType dtype = DType::float32;  ///< of floating tensors
  std::optional<double> scale;   ///< of floating inputs; none: input_scale()
};

/// The samples of files, read when they are asked for. `table` as open_data() made it for `model`.
std::unique_ptr<const Dataset> open_records(const ResolvedModel& model, SampleTable table,
                                            const TensorOptions& options);

}  // namespace pp::run
