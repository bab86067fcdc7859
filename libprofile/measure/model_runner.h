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
#include <random>
#include <span>
#include <vector>

#include "libprofile/core/model/model_graph.h"
#include "libprofile/device/compute_device.h"
#include "libprofile/device/memory_meter.h"
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
  std::vector<PassTimes> layers;                  ///< empty for PassKind::whole
  std::optional<PassTimes> first = std::nullopt;  ///< of Visit::after_update; nothing for PassKind::whole
  std::vector<double> forward, backward;          ///< of the whole model; filled for PassKind::whole only
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
struct Stretch {
  int begin = 0, end = 0;
  std::unique_ptr<model::Optimizer> optimizer = {};
  bool new_version = false;             ///< into other memory
  std::vector<at::Tensor> others = {};  ///< that memory, of the first update on
  std::vector<double> seconds = {};     ///< per update
};

class ModelRunner {
 public:
  /// Draws weights, makes gradient buffers and one batch per micro-batch size on `device`; all of it is charged
  /// to the account that the calling thread charges, which is `account`. `model` and `timer`, the device's,
  /// must outlive it.
  ModelRunner(const ResolvedModel& model, const ModelPart& part, std::vector<std::int64_t> sizes, DType dtype,
              MemoryFormat format, std::uint64_t seed, const MemoryAccount& account, const at::Device& device,
              Timer& timer);

  /// On a CUDA device one pass at size `size`, in which libraries load their kernels and take buffers
  /// that they keep; a CPU needs none before its bytes are counted. Throws as measure_bytes().
  void warm_up(std::size_t size);

  /// Of two training passes of size `size`, which first add to the weights' gradients and then begin them: the
  /// operations that have several kernels. Throws model::OutOfMemory; keeps no batch.
  model::KernelKeys kernel_keys(std::size_t size);
  /// What passes take from here on.
  void use(std::shared_ptr<const model::Kernels> kernels) { segment_.use(std::move(kernels)); }

  /// Makes the batch of size `size`, which stays, and runs kBytePasses on it: a plain one, then probed ones
  /// with full and with split backward, the first of a step and a later one each. Throws model::OutOfMemory;
  /// nothing of the pass is held then.
  PassBytes measure_bytes(std::size_t size);

  /// Makes the batch of size `size`, which stays. Throws model::OutOfMemory.
  void make_batch(std::size_t size);
  /// From here on the passes of size `size` get what other stages send from memory that their caches do not
  /// hold, as it comes from other devices: other tensors each time, 16 MiB in all, charged to nobody. Behind
  /// make_batch().
  void vary_boundaries(std::size_t size);
  /// Of batches that stay charged, but are not read by a pass of size `size` on samples of its own.
  Bytes bytes_of_idle_batches(std::size_t size) const;

  /// Runs the visit's passes with `in_flight` micro-batches in flight, as a stage of a pipeline has them: each
  /// backward belongs to the forward that is in_flight - 1 earlier. Between the dropped and the recorded ones
  /// the pipeline runs empty, for the update.
  VisitTimes run_visit(const Visit& visit, int in_flight);

  /// Runs `dropped` + `steps` training passes of size `size` and after each of them updates every stretch at
  /// learning rate 0, as a step ends: with gradients that have left the caches. Adds the seconds of the last
  /// `steps` to the stretches.
  void time_updates(std::size_t size, std::span<Stretch> stretches, int dropped, int steps);
  /// Bytes of the distinct trained parameters of these positions.
  Bytes trained_bytes(const Stretch& stretch) const;
  int layers() const { return segment_.layer_count(); }

  /// Bytes of the buffers of each layer of the part.
  std::vector<Bytes> buffer_bytes() const;

 private:
  /// What other stages send for passes of one size, `blocks` times one behind the other in each tensor.
  struct Boundaries {
    std::vector<at::Tensor> inputs;         ///< as segment_.inputs(); defined where a layer provides it
    std::vector<model::Tensors> gradients;  ///< as segment_.outputs()
    std::int64_t blocks = 0;
    std::int64_t forwards = 0, backwards = 0;  ///< so many have been taken
  };
  /// The batch of size `size` with other samples where the data provide them: cut from the data set here.
  std::vector<at::Tensor> cut_batch(std::size_t size);
  int positions() const { return segment_.layer_count() + (segment_.has_loss() ? 1 : 0); }
  bool owns_weights(std::size_t position) const;
  /// All that the layer reads stands in the batch.
  bool reads_batch_only(std::size_t position) const;
  std::vector<model::Tensors> arriving_gradients(std::size_t size);
  model::Pass forward(std::span<const at::Tensor> batch, model::LayerObserver* observer);
  /// A forward whose laps begin as the executor's: it reads a CUDA device's samples ahead, in another thread
  /// and stream, and cuts a CPU's within the operation.
  model::Pass timed_forward(LapTimer& laps, std::size_t size, model::LayerObserver* observer);
  void backward(model::Pass& pass, std::size_t size, PassKind kind, model::LayerObserver* observer);
  /// One pass with every byte counted; fills `saved` and raises `workspace` of `bytes`.
  void probe_pass(std::size_t size, PassKind kind, PassBytes& bytes);
  using Flying = std::deque<model::Pass>;
  /// Forwards until so many passes are in flight, and backwards until none is.
  void fill(Flying& flying, std::size_t size, int in_flight);
  void drain(Flying& flying, std::size_t size);
  void run_pass(Flying& flying, const Visit& visit, VisitTimes& times);
  /// The forward and the backward of the first of `in_flight` micro-batches; leaves the others in flight.
  void run_first_pass(Flying& flying, const Visit& visit, int in_flight, VisitTimes& times);
  /// At learning rate 0. The next gradients are written, not added.
  void update();
  /// Of the trained parameters of the positions [begin, end), without those that an earlier position of the
  /// part owns; `tensors` as Weights::layers.
  std::vector<at::Tensor> distinct_trained(const std::vector<std::vector<at::Tensor>>& tensors, int begin,
                                           int end) const;
  std::vector<at::Tensor> distinct_parameters() const;
  std::vector<Bytes> output_bytes(std::size_t size) const;

  const ResolvedModel& model_;
  std::vector<std::int64_t> sizes_;
  DType dtype_;
  MemoryAccount account_;
  at::Device device_;
  Timer& timer_;
  model::Segment segment_;
  at::Generator generator_;
  std::shared_ptr<const model::Weights> weights_;
  std::vector<std::vector<at::Tensor>> buffers_;
  model::Gradients gradients_;
  std::unique_ptr<model::Optimizer> optimizer_;  ///< without state
  std::int64_t samples_;
  std::vector<at::Tensor> data_;                  ///< as segment_.inputs(); defined where the data provide it
  std::vector<std::vector<at::Tensor>> batches_;  ///< per size, as segment_.inputs()
  /// Per size and output of the segment: the gradients that enter there; none with a loss.
  std::vector<std::vector<model::Tensors>> output_gradients_;
  std::vector<Boundaries> boundaries_;  ///< per size; without blocks: the same tensors each time
  std::mt19937_64 draw_;
  std::uint64_t seed_;
  std::int64_t step_ = 0;
};

}  // namespace pp::profile
