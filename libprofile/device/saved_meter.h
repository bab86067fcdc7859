// Which storages autograd keeps for backward, per layer. An Engine subclass offers every saved tensor of a
// metered thread to its meter; threads without a meter run as usual. While a meter is active, autograd's check
// against in-place changes of saved tensors is off: meter only while profiling.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "libprofile/core/units.h"
#include "libprofile/device/memory_meter.h"

namespace pp::profile {

/// Puts the metering engine in the default engine's place, for the whole process; later calls do nothing. Call
/// before the first graph. prepare_process() calls it.
void install_saved_meter();

struct SavedBytes {
  Bytes total;      ///< storages first kept by this layer, parameters excluded
  Bytes own_input;  ///< the part of them that is older than the layer's forward: what it received
  bool operator==(const SavedBytes&) const = default;
};

/// Meters the forward of the calling thread from construction to destruction. One per thread at a time.
/// `account` is the one that the thread charges: the age of its blocks tells a layer's inputs from what the
/// layer made.
class SavedMeter {
 public:
  SavedMeter(std::span<const at::Tensor> parameters, int layers, const MemoryAccount& account);
  ~SavedMeter();
  SavedMeter(const SavedMeter&) = delete;
  SavedMeter& operator=(const SavedMeter&) = delete;

  /// What is saved from now on belongs to layer `layer`.
  void enter(int layer);
  /// What is saved from now on is not counted.
  void leave() { layer_ = -1; }
  void record(const at::Tensor& saved);
  /// Of the layer: what of them stands over an input is of its own making.
  void made(std::span<const at::Tensor> outputs);

  /// Whether some layer has kept the tensor's storage so far, or it is a parameter.
  bool keeps(const at::Tensor& tensor) const { return counted_.contains(tensor.storage().data()); }
  const std::vector<SavedBytes>& layers() const { return bytes_; }
  /// The part of all saved so far that is younger than the meter: what the pass itself made, not its data.
  Bytes made() const { return made_; }

 private:
  MemoryAccount account_;
  std::vector<SavedBytes> bytes_;
  std::unordered_map<const void*, Bytes> received_;  ///< storages in the layer's own_input
  std::unordered_set<const void*>
      counted_;  ///< storages: parameters, then what the layers keep; only looked up
  Bytes made_;
  int layer_ = -1;
  std::int64_t first_mark_;  ///< account_.blocks() when the meter began
  std::int64_t mark_ = 0;    ///< the same when the layer began
};

}  // namespace pp::profile
