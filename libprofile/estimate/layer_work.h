// What the layers of a model do and keep, by the operations' own arithmetic: FLOPs, bytes moved, bytes kept for
// backward. Shapes alone: nothing is allocated.
#pragma once

#include <cstdint>
#include <vector>

#include "libprofile/core/model/model_graph.h"
#include "libprofile/estimate/device_spec.h"
#include "libprofile/estimate/tensor_split.h"

namespace pp::profile {

/// All-reduces between the members of a tensor group; with sequence parallelism each is a reduce-scatter and an
/// all-gather of the same bytes, which takes as long (Korthikanti et al., Reducing Activation Recomputation,
/// 2022, sec. 4.2.2).
struct Reductions {
  int calls = 0;
  double bytes = 0;  ///< of the whole tensors
};

/// Keys and values that a member of a context group gets from the others, and gradients of its own (Liu et al.,
/// Ring Attention, 2023, sec. 3).
struct Gathers {
  int calls = 0;
  double bytes = 0;
};

/// Tokens that a member sends to the experts of others and gets back from them (Lepikhin et al., GShard, 2020,
/// sec. 3). Both kinds of bytes move at once.
struct Exchanges {
  int calls = 0;
  double bytes = 0;   ///< to members of other nodes; in one node, all
  double inside = 0;  ///< to members of its own node, where the group is in several
};

/// Of one layer, or the loss, for one micro-batch: of one member of a tensor group.
struct LayerWork {
  std::vector<Work> forward, input_gradient, weight_gradient;  ///< operation by operation
  Reductions forward_reductions, backward_reductions;
  Gathers forward_gathers, backward_gathers;
  Exchanges forward_exchanges, backward_exchanges;
  double output = 0;  ///< bytes
  /// Bytes that a member sends on: a part each, gathered there (Narayanan et al., Efficient Large-Scale
  /// Language Model Training, 2021, sec. 4.1).
  double message = 0;
  double saved = 0;        ///< kept for backward, each tensor at the first layer that keeps it
  double saved_input = 0;  ///< the part that is the layer's own input
  /// Bytes: gradients of inputs and outputs, the largest gradient of an operation's weights but where products
  /// add it to the mini-batch's, what is made inside.
  double workspace = 0;
  double copies = 0;  ///< bytes of weights in the narrow type
};

struct WorkOptions {
  DeviceKind kind = DeviceKind::cuda;
  RunType dtype = {};
  Recipe recipe = {};  ///< of a narrow type
  std::int64_t micro_batch_size = 1;
  /// Members of a tensor group. More than one divide layers as split_operations() says.
  int tensor_degree = 1;
  /// Groups with a part of every sample's positions each.
  int context_degree = 1;
  /// Members that divide experts between them, with samples of their own beyond the two.
  int expert_degree = 1;
  int expert_nodes = 1;  ///< that these are in, equally many in each
  /// Groups of all these, with samples of their own.
  int shard_degree = 1;
  ExpertKernels experts = {};
  /// Whether they divide norms, dropout and sums by positions (Korthikanti et al., sec. 4.2.2).
  bool sequence_parallel = true;
  AttentionKernel attention = AttentionKernel::by_model;
  ElementKernels elements = ElementKernels::fused;
  /// Whether attention's scores are made again in the backward (Korthikanti et al., sec. 5).
  bool recompute_attention = false;
  double logit_bytes = 0;  ///< as TrainerSpec has them
};

/// Of all layers, then of the loss, where the model has one. `splits` are those of the degree. Throws pp::Error
/// (data) for an operation that has no arithmetic.
std::vector<LayerWork> layer_work(const ResolvedModel& model, const std::vector<OperationSplit>& splits,
                                  const WorkOptions& options);

}  // namespace pp::profile
