// Where the passes of a runner get their tensors: random ones of the types that the model declares, samples
// cut from a data set as the executor cuts them, and what other stages would send. All members are called on
// the device's own thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "libprofile/core/model/model_graph.h"
#include "libprofile/model/segment.h"

namespace pp::profile {

const TensorType& type_of(const ResolvedModel& model, const TensorSource& source);

/// Integers that may stand in this model input or target: below the number of rows of every embedding that it
/// reaches, and of classes of a cross entropy loss; 2 when nothing says more.
std::int64_t integer_limit(const ResolvedModel& model, const TensorSource& source);

/// One tensor [n, shape...] per source, each a model input or a target. Floating ones are normal(0, 1) in
/// `dtype`, integer ones uniform in [0, integer_limit). The same seed gives the same numbers.
std::vector<at::Tensor> random_batch(const ResolvedModel& model, const std::vector<TensorSource>& sources,
                                     std::int64_t n, DType dtype, std::uint64_t seed);

/// Types of floating layer outputs, by layer and output, where they are not the run's: autocast makes them.
using OutputTypes = std::map<std::pair<int, int>, at::ScalarType>;

class BatchSource {
 public:
  /// Draws the data set: 16 MiB, or two samples where that is more, on the host. `model` and `segment` must
  /// outlive it; `types` of what other stages send. Charged to no account: no worker pays for the training
  /// data.
  BatchSource(const ResolvedModel& model, const model::Segment& segment, std::vector<std::int64_t> sizes,
              DType dtype, OutputTypes types, std::uint64_t seed, const at::Device& device);

  /// Makes the batch of size `size`, which stays. Throws model::OutOfMemory.
  void make(std::size_t size);
  void drop(std::size_t size);
  /// From here on the passes of size `size` get what other stages send from memory that their caches do not
  /// hold, as it comes from other devices: other tensors each time, 16 MiB in all or two of each, charged to no
  /// account. Behind make().
  void vary_boundaries(std::size_t size);

  /// As Segment::inputs(): the batch that was made, always the same.
  const std::vector<at::Tensor>& batch(std::size_t size) const { return batches_[size]; }
  /// With other samples where the data provide them: cut from the data set here.
  std::vector<at::Tensor> cut(std::size_t size);
  /// From here on gradients have the types of these, which a pass made of Segment::outputs().
  void match_gradients(model::TensorSpan outputs);
  /// What arrives at Segment::outputs(): nothing with a loss, else ones.
  std::vector<model::Tensors> gradients(std::size_t size);

  std::int64_t samples(std::size_t size) const { return sizes_[size]; }
  /// Of batches that stay charged, but are not read by a pass of size `size` on samples of its own.
  Bytes idle_bytes(std::size_t size) const;

 private:
  /// What other stages send for passes of one size, `blocks` times one behind the other in each tensor.
  struct Boundaries {
    std::vector<at::Tensor> inputs;         ///< as Segment::inputs(); defined where a layer provides it
    std::vector<model::Tensors> gradients;  ///< as Segment::outputs()
    std::int64_t blocks = 0;
    std::int64_t forwards = 0, backwards = 0;  ///< taken so far
  };
  at::ScalarType type_of_sent(const TensorSource& source) const;
  /// [n, shape...] each, on the host.
  std::vector<at::Tensor> drawn(const std::vector<TensorSource>& sources, std::int64_t n) const;
  std::vector<model::Tensors> ones_for_outputs(std::int64_t n) const;

  const ResolvedModel& model_;
  const model::Segment& segment_;
  std::vector<std::int64_t> sizes_;
  DType dtype_;
  OutputTypes types_;
  std::uint64_t seed_;
  at::Device device_;
  std::int64_t samples_;
  std::vector<at::Tensor> data_;                  ///< as Segment::inputs(); defined where the data provide it
  std::vector<std::vector<at::Tensor>> batches_;  ///< per size, as Segment::inputs()
  std::vector<std::vector<model::Tensors>> output_gradients_;  ///< per size, as Segment::outputs()
  std::vector<Boundaries> boundaries_;  ///< per size; without blocks: the same tensors each time
  std::mt19937_64 draw_;
};

}  // namespace pp::profile
