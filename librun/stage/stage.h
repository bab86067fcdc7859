// One stage on one worker: the segment with its newest weights, the passes in flight with the versions they
// hold, the gradients of the current step, the optimizer, and batch norm's statistics until they are committed.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "libprofile/core/ids.h"
#include "libprofile/core/units.h"
#include "libprofile/model/optimizer.h"
#include "libprofile/model/segment.h"

namespace pp::run {

struct StageOptions {
  std::vector<int> layers;  ///< model-wide, ascending
  bool with_loss = false;
  std::vector<int> recompute = {};  ///< those of `layers` that run again inside backward
  DType dtype = DType::float32;
  at::Device device = at::kCPU;  ///< where weights, gradients and optimizer state live
  std::uint64_t seed = 1;
  std::unique_ptr<model::Optimizer> optimizer;
};

/// What a pass keeps of its forward: graphs, or only the tensors that came from other stages, for a
/// recompute().
enum class Keep { graphs, inputs };

/// What a replica has gathered since the last update, and what it needs of the others.
struct StepGradients {
  /// One per use of a parameter: parameters in the stage's order, the uses of one in ascending layer order.
  /// Undefined: no micro-batch ran here, or another use has the sum.
  std::vector<at::Tensor> uses;
  std::map<int, std::vector<model::BatchStatistics>> statistics;  ///< by micro-batch, in layer order
};

/// Gradients of a shared layer's parameters by the layer (model-wide index) and the parameter's index;
/// undefined: no micro-batch ran.
using UseGradients = std::map<std::pair<int, std::size_t>, at::Tensor>;
/// Their sums by the parameter's index.
using TiedGradients = std::map<std::size_t, at::Tensor>;

/// Bytes that are alive between two operations, counted from the tensors themselves.
struct StageBytes {
  Bytes weights;   ///< one version
  Bytes versions;  ///< the older ones that passes hold
  Bytes gradients;
  Bytes optimizer;
};

/// Lives in its worker's thread; not thread-safe. The model must outlive it.
class Stage {
 public:
  Stage(const ResolvedModel& model, StageOptions options);

  const model::Segment& segment() const { return segment_; }

  /// Trains on micro-batch `micro_batch` with the newest weights. Returns the outputs to be sent; the pass
  /// stays in flight. The generator must outlive it: recomputed layers draw from it again.
  std::vector<at::Tensor> forward(int micro_batch, std::span<const at::Tensor> inputs,
                                  const model::RandomKey& key, at::Generator& generator,
                                  Keep keep = Keep::graphs);
  /// Runs the forward of a pass that kept its inputs again, with the weights and the random numbers of the
  /// first time; loss and statistics are those of the first time. `inputs` as for forward(); read are only
  /// those that the data provide.
  void recompute(int micro_batch, std::span<const at::Tensor> inputs, const model::RandomKey& key,
                 at::Generator& generator);
  /// Mean loss of the pass that `forward` has just left in flight; the segment has the loss.
  double loss(int micro_batch) const;
  bool in_flight(int micro_batch) const { return flights_.contains(micro_batch); }

  /// Backward of the pass in flight, with the weights of its forward. `output_gradients` as Segment::backward
  /// wants them.
  std::vector<at::Tensor> backward(int micro_batch, std::span<const std::vector<at::Tensor>> output_gradients,
                                   double weight);
  std::vector<at::Tensor> input_gradient(int micro_batch,
                                         std::span<const std::vector<at::Tensor>> output_gradients,
                                         double weight);
  void weight_gradient(int micro_batch);

  /// Takes what the step has gathered.
  StepGradients take_gradients();
  /// Those of the parameters that layer `owner` shares with layers of this stage and of others.
  UseGradients tied_gradients(const StepGradients& gradients, int owner) const;
  /// Puts the sums over all uses everywhere in their place.
  void set_tied_gradients(StepGradients& gradients, int owner, const TiedGradients& sums) const;
  /// One optimizer step on the newest weights and the commit of the statistics in micro-batch order. In place
  /// when no pass holds the newest version, else on a copy, so that the passes keep theirs. Uses of a shared
  /// parameter are added in ascending layer order; a parameter without a gradient gets zero.
  void update(StepGradients gradients, double learning_rate);

  /// Forward alone, with the newest weights and running statistics; nothing stays in flight.
  model::Pass evaluate(std::span<const at::Tensor> inputs, at::Generator& generator) const;

  int version() const { return newest_->version; }
  int flight_count() const { return static_cast<int>(flights_.size()); }
  /// Versions alive: the newest and those that passes hold.
  int version_count() const;
  /// Version that the pass in flight holds.
  int version_of(int micro_batch) const { return flights_.at(micro_batch).version; }
  StageBytes bytes() const;

  using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;
  /// Per layer (model-wide index) its own parameters by model-wide name (`conv1.weight`), then its buffers.
  /// References.
  std::vector<std::pair<int, NamedTensors>> named_tensors() const;

 private:
  /// A trained tensor and its uses in the segment, ascending.
  struct Parameter {
    struct Use {
      std::size_t layer, index;
    };
    std::vector<Use> uses;
  };
  struct Flight {
    model::Pass pass;
    int version = 0;
    std::shared_ptr<const model::Weights> weights = {};  ///< until the recompute: of its forward
    std::vector<at::Tensor> inputs = {};                 ///< until then: undefined where the data provide them
  };

  std::vector<Parameter> distinct_parameters() const;
  /// visit(use, its entry of StepGradients::uses) for every use of parameters that layer `owner` has.
  template <class Visit>
  void for_each_use(int owner, Visit&& visit) const;
  const at::Tensor& newest(const Parameter& parameter) const;
  void replace_newest();
  void commit(const std::map<int, std::vector<model::BatchStatistics>>& statistics);
  void retire(int micro_batch);

  const ResolvedModel& model_;
  model::Segment segment_;
  std::unique_ptr<model::Optimizer> optimizer_;
  std::shared_ptr<model::Weights> newest_;
  std::vector<std::vector<at::Tensor>> buffers_;  ///< per layer of the segment
  std::vector<Parameter> parameters_;
  model::Gradients gradients_;
  std::map<int, Flight> flights_;  ///< by micro-batch
  std::map<int, std::vector<model::BatchStatistics>> statistics_;
  Bytes weight_bytes_;
};

}  // namespace pp::run
