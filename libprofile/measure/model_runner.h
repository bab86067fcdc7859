// The whole model, or a part of it, on one device as the executor runs it: one segment, training passes on
// random data. All members are called on the device's own thread.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "libprofile/core/model/model_graph.h"
#include "libprofile/device/compute_device.h"
#include "libprofile/device/memory_meter.h"
#include "libprofile/measure/batch_source.h"
#include "libprofile/measure/layer_probes.h"
#include "libprofile/measure/rounds.h"
#include "libprofile/model/optimizer.h"
#include "libprofile/model/segment.h"

namespace pp::profile {

/// What ModelRunner::measure_bytes() runs.
inline constexpr int kBytePasses = 5;

/// Bytes of one training pass at one micro-batch size.
struct PassBytes {
  std::vector<Bytes> outputs;  ///< per layer of the part, then the loss
  std::vector<SavedBytes> saved;
  std::vector<Bytes> workspace;
  std::vector<Bytes> waiting;  ///< between the halves of a split backward
  Bytes peak;  ///< of the model with weights, gradients, data and this one micro-batch; without optimizer state
  Bytes kept;  ///< between forward and backward, of the batch as well
};

/// Per recorded pass, in seconds.
struct VisitTimes {
  std::vector<PassTimes> layers;                  ///< empty for Laps::whole
  std::optional<PassTimes> first = std::nullopt;  ///< of Visit::after_update; nothing for Laps::whole
  std::vector<double> forward, backward;          ///< of the whole model; filled for Laps::whole only
};
/// One number per recorded pass: forward plus backward of all layers.
std::vector<double> pass_seconds(const VisitTimes& times);

/// What a runner runs: layers, model-wide and ascending, and the loss behind them.
struct ModelPart {
  std::vector<int> layers;
  bool with_loss = false;
  int positions() const { return static_cast<int>(layers.size()) + (with_loss ? 1 : 0); }
};
ModelPart whole_model(const ResolvedModel& model);

/// Neighbouring layers of the part, [begin, end), that an optimizer of their own updates.
struct UpdateRange {
  int begin = 0, end = 0;
  std::unique_ptr<model::Optimizer> optimizer = {};
  bool new_version = false;             ///< into other memory
  std::vector<at::Tensor> others = {};  ///< that memory, of the first update on
  std::vector<double> seconds = {};     ///< per update
};

/// What all passes share, whatever they are timed under: they run as in a training of these.
struct RunnerOptions {
  std::vector<std::int64_t> micro_batch_sizes;
  DType dtype = DType::float32;
  MemoryFormat memory_format = MemoryFormat::contiguous;
  std::optional<at::ScalarType> autocast = std::nullopt;
  OutputTypes sent = {};  ///< of what a part gets from others
  std::uint64_t seed = 1;
};

class ModelRunner {
 public:
  /// Draws weights, makes gradient buffers and one batch per micro-batch size on `device`; all of it is charged
  /// to the account that the calling thread charges, which is `account`. `model` and `timer`, the device's,
  /// must outlive it.
  ModelRunner(const ResolvedModel& model, const ModelPart& part, RunnerOptions options,
              const MemoryAccount& account, const at::Device& device, Timer& timer);

  /// On a CUDA device one pass at size `size`, in which libraries load their kernels and take buffers
  /// that they keep; a CPU needs none before its bytes are counted. Throws as measure_bytes().
  void warm_up(std::size_t size);

  /// Of two training passes of size `size`, which first add to the weights' gradients and then begin them: the
  /// operations that have several kernels. Throws model::OutOfMemory; keeps no batch.
  model::KernelKeys kernel_keys(std::size_t size);
  /// What passes take from here on.
  void use(std::shared_ptr<const model::Kernels> kernels) { segment_.use(std::move(kernels)); }

  /// Makes the batch of size `size`, which stays, and runs kBytePasses on it: one that looks at the outputs
  /// alone, then probed ones with full and with split backward, the first of a step and a later one each.
  /// Throws model::OutOfMemory; nothing of the pass is held then.
  PassBytes measure_bytes(std::size_t size);

  BatchSource& batches() { return batches_; }
  const BatchSource& batches() const { return batches_; }
  /// Of the part's layers, those that autocast made of another type in the passes so far.
  const OutputTypes& output_types() const { return output_types_; }

  /// Runs the visit's passes with `in_flight` micro-batches in flight, as a stage of a pipeline has them: each
  /// backward belongs to the forward that is in_flight - 1 earlier. Between the dropped and the recorded ones
  /// the pipeline runs empty, for the update.
  VisitTimes run_visit(const Visit& visit, int in_flight);

  /// Runs `dropped` + `steps` training passes of size `size` and after each of them updates every range at
  /// learning rate 0, as a step ends: with gradients that have left the caches. Adds the seconds of the last
  /// `steps` to the ranges.
  void time_updates(std::size_t size, std::span<UpdateRange> ranges, int dropped, int steps);
  /// Bytes of the distinct trained parameters of these positions.
  Bytes trained_bytes(const UpdateRange& range) const;
  int layers() const { return segment_.layer_count(); }

  /// Bytes of the buffers of each layer of the part.
  std::vector<Bytes> buffer_bytes() const;

 private:
  int positions() const { return segment_.layer_count() + (segment_.has_loss() ? 1 : 0); }
  bool owns_weights(std::size_t position) const;
  /// Of the batch of this size, which stays, what the data provide.
  std::vector<DataInput> data_inputs(std::size_t size) const;
  /// All that the layer reads stands in the batch.
  bool reads_batch_only(std::size_t position) const;
  /// Tensors of `batch` without another reference go with their last reader, as in a run.
  model::Pass forward(std::vector<at::Tensor> batch, model::LayerObserver* observer);
  /// A forward whose laps begin as the executor's: it reads a CUDA device's samples ahead, in another thread
  /// and stream, and cuts a CPU's within the operation.
  model::Pass timed_forward(LapTimer& laps, std::size_t size, model::LayerObserver* observer);
  void backward(model::Pass& pass, std::size_t size, Laps laps, model::LayerObserver* observer);
  /// One pass with every byte counted; fills `saved` and raises `workspace` of `bytes`.
  void probe_pass(std::size_t size, Laps laps, PassBytes& bytes);
  using InFlight = std::deque<model::Pass>;
  /// Forwards until `in_flight` passes are in flight; backwards until none is.
  void fill(InFlight& passes, std::size_t size, int in_flight);
  void drain(InFlight& passes, std::size_t size);
  void run_pass(InFlight& passes, const Visit& visit, VisitTimes& times);
  /// The forward and the backward of the first of `in_flight` micro-batches; leaves the others in flight.
  void run_first_pass(InFlight& passes, const Visit& visit, int in_flight, VisitTimes& times);
  /// At learning rate 0. The next gradients are written, not added.
  void update();
  /// Of the trained parameters of the positions [begin, end), without those that an earlier position of the
  /// part owns; `tensors` as Weights::layers.
  std::vector<at::Tensor> distinct_trained(const std::vector<std::vector<at::Tensor>>& tensors, int begin,
                                           int end) const;
  std::vector<at::Tensor> distinct_parameters() const;

  const ResolvedModel& model_;
  RunnerOptions options_;
  MemoryAccount account_;
  at::Device device_;
  Timer& timer_;
  model::Segment segment_;
  at::Generator generator_;
  std::shared_ptr<const model::Weights> weights_;
  std::vector<std::vector<at::Tensor>> buffers_;
  model::Gradients gradients_;
  std::unique_ptr<model::Optimizer> optimizer_;  ///< without state
  BatchSource batches_;
  OutputTypes output_types_;
  std::int64_t step_ = 0;
};

}  // namespace pp::profile
