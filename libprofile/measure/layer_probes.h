// What watches a pass layer by layer: a timer and a byte counter. Both are LayerObservers; position
// layer_count() is the loss.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>
#include <vector>

#include "libprofile/device/memory_meter.h"
#include "libprofile/device/saved_meter.h"
#include "libprofile/device/timer.h"
#include "libprofile/model/segment.h"

namespace pp::profile {

inline constexpr int kPhases = 4;
/// Seconds per phase of LayerObserver and position; 0 for a layer without work in a phase.
using PassTimes = std::array<std::vector<double>, kPhases>;

/// Times laps: a layer's time runs from the end of the layer before it to its own end. So what the runner does
/// between two layers is counted too, as the executor will pay it, and a layer costs one mark of the timer.
class LapTimer final : public model::LayerObserver {
 public:
  /// The timer has no marks, must outlive it and belongs to it until take().
  LapTimer(Timer& timer, int positions) : timer_(timer), positions_(positions) {}

  /// Before the forward, the backward, or each half of it.
  void start();
  void begin(int, Phase) override {}
  void end(int position, Phase phase) override;
  /// The times since construction or the last take().
  PassTimes take();

 private:
  struct Lap {
    Phase phase;
    int position;
  };

  Timer& timer_;
  int positions_;
  std::vector<std::optional<Lap>> laps_;  ///< per mark: the lap that it ends; nothing for a start
};

/// A tensor of the data, and the first and the last position that reads it.
struct DataInput {
  at::Tensor tensor;
  int first = 0, last = 0;
};

/// Per position: what it saves, and the most memory it needs beyond what the pass keeps then. For one pass.
class ByteProbe final : public model::LayerObserver {
 public:
  /// Made just before the forward. `outputs[p]`: bytes of the outputs at position p, the size of the gradients
  /// that reach it in backward. `data`: those of the batch, which stays; a run gives them away.
  ByteProbe(std::vector<Bytes> outputs, std::vector<DataInput> data, SavedMeter& saved,
            const MemoryAccount& account);

  void begin(int position, Phase phase) override;
  void made(int, model::TensorSpan outputs) override { saved_.made(outputs); }
  void end(int position, Phase phase) override;

  /// Transient memory. Forward and backward: the peak above what the layers up to and including this one save,
  /// which is what the pass still keeps then: inputs and outputs that no layer saves, gradients, fresh weight
  /// gradients, what kernels take. In forward with the data that it reads, or that layers around it read, as
  /// far as no layer has saved them yet. The halves of backward, which leave more behind: the peak above what
  /// is live at its begin, plus the output gradients. The largest of all.
  const std::vector<Bytes>& workspace() const { return workspace_; }
  /// Deferred weight-gradient bytes, what the weight gradients free: kept until then for them alone, or for
  /// layers behind that are done already.
  const std::vector<Bytes>& waiting() const { return waiting_; }

 private:
  /// Of the data that a run has at this position, beyond what is saved.
  Bytes passing(int position) const;

  std::vector<Bytes> outputs_;
  std::vector<DataInput> data_;
  SavedMeter& saved_;
  MemoryAccount account_;
  Bytes live_before_;        ///< the pass
  Bytes live_at_begin_;      ///< of the layer
  std::vector<Bytes> kept_;  ///< per position: made and saved by the pass up to the end of its forward
  std::vector<Bytes> workspace_;
  std::vector<Bytes> waiting_;
};

}  // namespace pp::profile
