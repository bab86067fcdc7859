// A pass of a stage as CUDA graphs: the kernels of its forward and of its backward are recorded once, and
// later passes replay them, with a few calls of the host in place of one for every kernel. For layers so
// small that the device waits for the host. A stage has as many as micro-batches are in flight at once.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "libprofile/device/memory_meter.h"
#include "libprofile/device/queued_work.h"
#include "libprofile/model/segment.h"
#include "librun/stage/pass_kind.h"

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

/// The first step runs as without recording, so that libraries have what they keep; from the second on passes
/// are recorded when they are needed, for micro-batches as large as those of the first step, and used again by
/// passes of the same kind.
class RecordedPasses {
 public:
  /// `kinds`: of the forwards of a mini-batch, in their order. `payer` is charged for the memory of all. The
  /// segment must outlive it.
  RecordedPasses(const model::Segment& segment, std::vector<PassKind> kinds,
                 const profile::MemoryAccount& payer)
      : segment_(segment), kinds_(std::move(kinds)), payer_(payer) {}

  /// For the next forward; it is the caller's until give(). Null: it runs without. Weights and context are the
  /// same at all calls.
  RecordedPass* take(const std::shared_ptr<const model::Weights>& weights, model::TensorSpan inputs,
                     const model::PassContext& context);
  void give(RecordedPass* pass);
  /// An update: its mini-batches are over.
  void end_step();

  GraphCount count() const;

 private:
  struct Entry {
    PassKind kind;
    std::int64_t rows = 0;
    bool taken = false;
    std::unique_ptr<RecordedPass> pass;
  };

  const model::Segment& segment_;
  std::vector<PassKind> kinds_;
  profile::MemoryAccount payer_;
  std::vector<Entry> entries_;
  std::set<std::int64_t> rows_;  ///< of the first step's micro-batches
  std::int64_t replayed_ = 0;
  std::size_t forwards_ = 0;  ///< of this step
  bool warm_ = false;         ///< a step has ended
};

}  // namespace pp::run
