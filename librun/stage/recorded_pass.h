// A pass of a stage as CUDA graphs: the kernels of its forward and of its backward are recorded once, and
// later passes replay them, with a few calls of the host in place of one for every kernel. For layers so small
// that the device waits for the host.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "libprofile/device/memory_meter.h"
#include "libprofile/device/recording.h"
#include "libprofile/model/segment.h"

namespace pp::run {

/// Runs one micro-batch at a time: a forward, then its backward or its input and weight gradients. The kernels
/// are those of Segment on the same shapes, so the bits are the same. What comes in is copied to where they
/// read it, what goes out is copied from where they write it, so that others may keep it.
class RecordedPass {
 public:
  /// Records the forward, for inputs like these. Weights and context are those of all passes to come; nothing
  /// draws random numbers. The segment must outlive it. The memory of recorded work is charged to `payer`.
  RecordedPass(const model::Segment& segment, std::shared_ptr<const model::Weights> weights,
               model::TensorSpan inputs, const model::PassContext& context,
               const profile::MemoryAccount& payer);

  /// Of the recorded work.
  Bytes bytes() const { return memory_.peak(); }

  /// Outputs, loss and statistics; no graphs.
  model::Pass forward(model::TensorSpan inputs);

  // As in Segment, of the pass that has run forward; the first call of each records. `sums` have nothing at
  // every such call, or something at every one: else pp::Error (internal).
  model::Tensors backward(std::span<model::Tensors> output_gradients, double loss_weight,
                          model::Gradients& sums);
  model::Tensors input_gradient(std::span<model::Tensors> output_gradients, double loss_weight);
  void weight_gradient(model::Gradients& sums);

 private:
  /// What `work` allocates is the recording's.
  template <class Work>
  void charged(const Work& work);
  /// `work` becomes the next piece.
  template <class Work>
  void record(const Work& work);
  /// The next piece of the pass; `work` where it has not been recorded yet.
  template <class Work>
  void run(const Work& work);
  template <class Work>
  void run_into(model::Gradients& sums, const Work& work);
  void receive(std::span<model::Tensors> output_gradients, double loss_weight);

  const model::Segment& segment_;
  profile::MemoryAccount payer_, memory_;
  std::optional<profile::MemoryCharge> charge_;  ///< of the payer: the peak of `memory_`
  std::unique_ptr<profile::Recording> recording_;
  std::size_t recorded_ = 0, next_ = 0;  ///< pieces
  // Where the recorded kernels read and write.
  model::Tensors inputs_, input_gradients_;
  std::vector<model::Tensors> output_gradients_;  ///< empty: none have come
  model::Pass pass_;
  struct Sums {
    bool empty_before = false;
    std::vector<std::vector<at::Tensor>> after;
  };
  std::optional<Sums> sums_;  ///< none: not recorded
};

}  // namespace pp::run
