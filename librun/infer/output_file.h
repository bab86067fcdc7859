// The outputs of a model for all samples, as a safetensors file whose rows are written where they belong while
// they are made: it may be larger than memory.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "libprofile/core/file.h"
#include "librun/worker/inference.h"

namespace pp::run {

class OutputFile final : public Inference {
 public:
  /// `dtype`: of floating outputs. Throws pp::Error (usage) when the file cannot be written.
  OutputFile(const std::filesystem::path& path, const ResolvedModel& model, DType dtype,
             const EpochShape& shape);

  Step begin(int workers) override;
  Step completed(Step pass) override;
  std::int64_t done() const override { return samples_done_; }
  std::int64_t all() const override { return shape_.samples; }
  void finish() override;
  void take(const Operation& operation, std::size_t output, const at::Tensor& values) override;

 private:
  struct Place {
    std::uint64_t offset = 0, row_bytes = 0;
    at::ScalarType type{};
  };

  AtomicFile file_;
  EpochShape shape_;
  std::vector<std::optional<Place>> places_;  ///< per output of the model; none: it was named before
  Step passes_done_ = 0, lead_ = 0;
  std::int64_t samples_done_ = 0;
};

}  // namespace pp::run
