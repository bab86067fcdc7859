// One stage on one worker: the segment with its weight versions, the passes in flight with those they hold, the
// gradients of the current step, the optimizer, and batch norm's statistics until they are committed.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "libprofile/core/index.h"
#include "libprofile/core/units.h"
#include "libprofile/model/optimizer.h"
#include "libprofile/model/segment.h"
#include "librun/checkpoint/weights.h"
#include "librun/options/run_options.h"
#include "librun/options/weight_rules.h"
#include "librun/stage/flat_layout.h"
#include "librun/stage/flights.h"
#include "librun/stage/recorded_pass.h"
#include "librun/stage/weight_versions.h"
#include "librun/transport/slices.h"

namespace pp::run {

struct StageOptions {
  std::vector<int> layers;  ///< model-wide, ascending
  bool with_loss = false;
  std::vector<int> recompute = {};  ///< those of `layers` that run again inside backward
  DType dtype = DType::float32;
  MemoryFormat format = MemoryFormat::contiguous;
  std::optional<Autocast> autocast = {};  ///< type of the products in forwards (model::PassContext)
  std::shared_ptr<const model::Kernels> kernels = {};  ///< null: the usual ones
  at::Device device = at::kCPU;                        ///< where weights, gradients and optimizer state live
  std::uint64_t seed = 1;
  /// What restore() will bring, while the stage is made: weights that are not among it are drawn. None: all
  /// are.
  const StoredTensors* given = nullptr;
  std::unique_ptr<model::Optimizer> optimizer;  ///< null: forwards alone, without gradients
  WeightRules rules = {};                       ///< which weights depart from the others
  plan::WeightPolicy policy = plan::WeightPolicy::flush;
  int stages = 1;      ///< of the whole pipeline
  int index = 0;       ///< of the stage
  int per_update = 1;  ///< micro-batches
  /// Passes are recorded and replayed (RecordedPasses): the kinds of a mini-batch's, in the order of their
  /// forwards, and who pays for the memory. None: they are not. Only on CUDA devices, with policy flush, for
  /// layers that draw no random numbers.
  struct Recorded {
    std::vector<PassKind> kinds;
    profile::MemoryAccount payer;
  };
  std::optional<Recorded> recorded = {};
  /// Weights are of a half type; gradients, the optimizer's state and a copy of the weights that it steps on,
  /// the master, are float32 (plan::Precision::mixed). Only with policy flush.
  bool master = false;
  /// The replicas among which the optimizer's state is divided (plan::Shard::optimizer), and which of them this
  /// is. One: it is not. Only with policy flush.
  std::size_t owners = 1, owner = 0;
};

/// What a pass keeps of its forward: graphs, or only the tensors that came from other stages, for a
/// recompute().
enum class Keep { graphs, inputs };

/// Batch norm's sums that are not committed yet, each with its micro-batch.
using Statistics = std::vector<model::BatchStatistics>;

/// Gradients of a shared layer's parameters by the layer (model-wide index) and the parameter's index;
/// undefined: no micro-batch ran.
using UseGradients = std::map<std::pair<int, std::size_t>, at::Tensor>;

/// Bytes that are alive between two operations, counted from the tensors themselves.
struct StageBytes {
  Bytes weights;   ///< one version
  Bytes versions;  ///< the older ones that are kept
  Bytes gradients;
  Bytes optimizer;
};

/// Lives in its worker's thread; not thread-safe. The model must outlive it.
class Stage {
 public:
  Stage(const ResolvedModel& model, StageOptions options);
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  const model::Segment& segment() const { return segment_; }

  /// A stream begins (again): versions and steps count from here. Nothing is in flight.
  void restart();

  /// Weight policy predict: what forwards, or backwards and what they run again, see until the next call: the
  /// newest weights as the updates to come at this learning rate will probably leave them. Forwards of one
  /// step (since restart()) see what the first of them has seen. Other policies: nothing.
  void predict_for_forward(std::int64_t step, double learning_rate);
  void predict_for_backward(double learning_rate);

  /// Trains on micro-batch `micro_batch` of `step` (since restart()) with the version that the weight policy
  /// says. Returns the outputs to be sent; the pass stays in flight. The generator must outlive it: recomputed
  /// layers draw from it again. Of `inputs` those that the data provide are given away: they are gone with
  /// their last reader, unless the pass keeps them. `label_shares` as PassContext has them; with them a pass
  /// is not recorded.
  model::Tensors forward(int micro_batch, std::int64_t step, std::span<at::Tensor> inputs,
                         const model::RandomKey& key, at::Generator& generator, Keep keep = Keep::graphs,
                         std::vector<double> label_shares = {});
  /// Runs the forward of a pass that kept its inputs again, with the weights and the random numbers of the
  /// first time; loss and statistics are those of the first time. `inputs` and `label_shares` as for forward();
  /// read are only those inputs that the data provide, which are given away.
  void recompute(int micro_batch, std::span<at::Tensor> inputs, const model::RandomKey& key,
                 at::Generator& generator, std::vector<double> label_shares = {});
  /// The pass ends without a backward.
  void forget(int micro_batch);
  /// Mean loss of the pass that `forward` has just left in flight; the segment has the loss.
  const at::Tensor& loss(int micro_batch) const { return flights_.at(micro_batch).pass.loss; }

  /// Backward of the pass in flight, with the weights of its forward. `output_gradients` as Segment::backward
  /// wants them; the observer as well, which sees nothing of a recorded pass.
  model::Tensors backward(int micro_batch, std::span<model::Tensors> output_gradients, double weight,
                          model::LayerObserver* observer = nullptr);
  model::Tensors input_gradient(int micro_batch, std::span<model::Tensors> output_gradients, double weight);
  void weight_gradient(int micro_batch, model::LayerObserver* observer = nullptr);

  /// What backwards have added since the last update, one place per use of a parameter (FlatLayout), zero where
  /// nothing was added; to be reduced over replicas in place. Undefined without parameters.
  at::Tensor complete_gradient();
  /// The same of a part, whose layers have run their last backward of the step.
  at::Tensor complete_gradient(const FlatLayout::Bucket& bucket);
  std::vector<FlatLayout::Bucket> buckets(Bytes least) const;
  /// The same of batch norm, to be brought together over replicas.
  Statistics& statistics() { return statistics_; }
  bool has_statistics() const;
  /// The gradients of the parameters that layer `owner` shares with layers of this stage and of others.
  UseGradients tied_gradients(int owner) const;
  /// Replaces them by their sums over all uses.
  void set_tied_gradients(int owner, const std::map<std::size_t, at::Tensor>& sums);
  /// Of each parameter that belongs to a layer of this stage, as far as this owner has it: model-wide layer,
  /// index, square of the norm of its gradient, all uses added, in float64. No backward of the step is left.
  struct SquareNorm {
    int layer;
    std::size_t index;
    std::int64_t first_block;     ///< in the parameter
    std::vector<double> squares;  ///< by block (block_squares.h); of a whole parameter their sum alone
  };
  std::vector<SquareNorm> square_norms();
  /// Multiplies what the update applies.
  void scale_gradient(double factor);
  /// The optimizer's step on what the gradients add up to, as the update of `step` (since restart()), and the
  /// commit of the statistics in micro-batch order. Uses of a shared parameter are added in ascending layer
  /// order; a parameter without a gradient gets zero.
  void update(std::int64_t step, double learning_rate);

  /// Where replicas divide the optimizer's state: whose is what of the gradient, of the weights, and of the
  /// gradients of what layer `owner` shares with layers of this stage. Empty where they do not. Before an
  /// update a replica needs the sums of its own slices; the update changes its own weights alone, and `spread`
  /// gives everybody all of them.
  std::vector<Slice> gradient_slices() const;
  std::vector<Slice> weight_slices() const;
  std::vector<Slice> tied_slices(int owner) const;

  /// In place of update(): gradients and statistics are dropped, nothing else changes.
  void drop_update();

  /// For updates that are made elsewhere (server/): what the update would apply, the newest weights as one
  /// vector of the same layout, which may be written while nothing is in flight, any such vector by parameter,
  /// and the optimizer. The vectors are undefined without parameters.
  FlatTensors update_gradient();
  at::Tensor flat_weights() const { return versions_.newest_flat(); }
  FlatTensors parameters_of(at::Tensor flat) const;
  model::Optimizer& optimizer() { return *optimizer_; }

  /// What of it is on the device, where its weights live on the host (swap/): all that training needs, weights
  /// and buffers alone, or nothing. Nothing is in flight.
  enum class Hold { nothing, weights, training };
  /// What was not there before has arbitrary values.
  void hold(Hold what);
  Hold held() const { return hold_; }
  /// The tensors that are copied to the host and back, as far as they are on the device: weights, buffers, then
  /// what the optimizer has.
  std::vector<at::Tensor> swapped() const;

  /// Forward alone, with the newest weights and running statistics; nothing stays in flight.
  /// `piece`, `caches` and `label_shares` as PassContext has them.
  model::Pass evaluate(model::TensorSpan inputs, at::Generator& generator, const model::Piece* piece = nullptr,
                       std::span<model::LayerCache> caches = {}, std::vector<double> label_shares = {}) const;

  /// The newest, per layer of the segment.
  const model::Weights& weights() const { return versions_.newest(); }
  int version() const { return versions_.version(); }
  int flight_count() const { return static_cast<int>(flights_.size()); }
  /// Versions alive (WeightVersions).
  int version_count() const { return versions_.count(); }
  /// Version that the pass in flight holds.
  int version_of(int micro_batch) const { return flights_.at(micro_batch).version; }
  StageBytes bytes() const;
  GraphCount recorded() const { return recorded_ ? recorded_->count() : GraphCount{}; }

  /// A copy on the host of all that training goes on from, by model-wide name: of each layer the parameters
  /// that it owns and its buffers, and what the optimizer has of its parameters. Nothing is in flight.
  struct LayerState {
    int layer;                    ///< model-wide
    std::size_t owner = 0;        ///< of the optimizer's state
    NamedTensors tensors = {};    ///< `conv1.weight`
    NamedTensors optimizer = {};  ///< `conv1.weight.exp_avg`
  };
  /// Replicas that divide the optimizer's state hand in the rows that they own, `conv1.weight.exp_avg[16:32]`
  /// where that is not all; the first of them the rest. From a CUDA device to pinned memory: complete when the
  /// device has done what it was given (wait_for()), whatever is handed to it afterwards.
  std::vector<LayerState> snapshot() const;
  /// Goes on from such tensors, wherever they come from; what is not among them stays as it is. Before the
  /// first forward.
  void restore(const StoredTensors& tensors, const StoredTensors& optimizer);

 private:
  struct Flight {
    model::Pass pass;
    int version = 0;
    std::shared_ptr<const model::Weights> weights = {};  ///< until the recompute: of its forward
    model::Tensors inputs = {};                          ///< until then: undefined where the data provide them
    RecordedPass* recorded = nullptr;                    ///< has the graphs in place of `pass`; null: none has
  };

  at::Tensor place(const FlatLayout::Parameter& parameter, const FlatLayout::Use& use) const {
    return FlatLayout::view(gradient_, parameter, use.offset);
  }
  /// Handles of a pass's inputs; those that the data provide are taken from `inputs`.
  model::Tensors given(std::span<at::Tensor> inputs) const;
  model::PassContext training_context(const model::RandomKey& key, at::Generator& generator) const;
  bool shares_state() const { return parts_.size() > 1; }
  const std::vector<FlatLayout::Piece>& own() const { return parts_[owner_]; }
  /// What the optimizer works on of a vector with the places of weights: this owner's pieces.
  std::vector<at::Tensor> own_of(const at::Tensor& flat) const;
  at::Tensor& sum(const FlatLayout::Use& use) { return sums_.layers[use.layer][use.index]; }
  /// visit(parameter, use) for every use of parameters that layer `owner` has.
  template <class Visit>
  void for_each_use(int owner, Visit&& visit) const;
  std::string name_of(const FlatLayout::Parameter& parameter) const;
  FlatLayout::Buffers first_weights(const StageOptions& options) const;
  /// Adds the uses of each parameter; done once, further calls change nothing.
  void fold_uses();
  void commit_statistics();
  void retire(int micro_batch);
  void end_step();

  const ResolvedModel& model_;
  model::Segment segment_;
  std::unique_ptr<model::Optimizer> optimizer_;
  std::optional<at::ScalarType> autocast_;
  at::ScalarType dtype_;
  FlatLayout layout_;
  WeightVersions versions_;
  std::optional<std::int64_t> shared_by_;              ///< step whose forwards share a prediction
  std::vector<std::vector<at::Tensor>> buffers_;       ///< per layer of the segment
  std::vector<std::vector<BatchNorm>> batch_norms_;    ///< likewise
  at::Tensor gradient_;                                ///< flat
  model::Gradients sums_;                              ///< views of it, as far as something was added
  std::vector<at::Tensor> update_gradients_;           ///< views of it: what the optimizer reads, per piece
  std::vector<std::vector<FlatLayout::Piece>> parts_;  ///< of the weights, per owner of the optimizer's state
  std::size_t owner_ = 0;                              ///< this one
  std::vector<at::Tensor> masters_;         ///< float32, per piece; empty: the optimizer steps on the weights
  std::optional<RecordedPasses> recorded_;  ///< none: passes are not recorded
  Flights<Flight> flights_;
  Hold hold_ = Hold::training;
  Statistics statistics_;
  std::vector<model::NormStatistics> norm_statistics_;  ///< of one update; kept for its memory
};

}  // namespace pp::run
