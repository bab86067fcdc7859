// One linear order of a model at one micro-batch size: prefix sums of everything a stage [begin, end) needs, so
// that a stage is priced in O(1). Tensors are sent straight from the producing to each consuming stage.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "libplan/cost/graph.h"
#include "libplan/cost/layer_curve.h"

namespace pp::plan {

/// Sums over the tensors at a boundary, by how far from it they start or end.
class CrossingTable {
 public:
  explicit CrossingTable(int boundaries = 0) : rows_(static_cast<std::size_t>(boundaries)) {}
  void add(int boundary, int distance, std::int64_t bytes);
  /// Sorts and sums up; call once, after the last add().
  void finish();
  /// Bytes at `boundary` with distance < `reach`. O(log tensors at the boundary).
  std::int64_t sum(int boundary, int reach) const;

 private:
  struct Item {
    int distance;
    std::int64_t bytes;  ///< of this and all nearer ones after finish()
  };
  std::vector<std::vector<Item>> rows_;
};

/// What the optimizer adds to a parameter, and what it takes besides.
struct OptimizerCost {
  double state_ratio = 1;      ///< state bytes per parameter byte
  double update_per_byte = 0;  ///< seconds per parameter byte
  double update_fixed = 0;     ///< seconds per update of a stage
  // Times as long; chains leave both out.
  double beside = 1;       ///< where each profiled device updates a whole model at once, at least 1
  double new_version = 1;  ///< where passes hold the weights before
};

/// What the executor takes for every operation of a stage, whatever its layers. A split backward pays for both
/// halves. In seconds.
struct OperationCost {
  double forward = 0;   ///< F and R
  double backward = 0;  ///< B, I and W
  bool operator==(const OperationCost&) const = default;
};

/// Of one micro-batch: activations one way, their gradients the other.
struct Exchange {
  double activation = 0, gradient = 0;  ///< bytes
  int activations = 0, gradients = 0;   ///< tensors
  bool operator==(const Exchange&) const = default;
};
/// Of each figure the smaller one.
Exchange least_of(const Exchange& a, const Exchange& b);

/// Read-only after make_chain(). Boundaries are 0..N, or the down-sets of a graph (lattice.h); prefix arrays
/// have N + 1 entries.
struct Chain {
  std::vector<int> order;                                  ///< layer at each position; empty over down-sets
  std::vector<double> forward, backward, update, weights;  ///< prefix sums; seconds, and parameter bytes
  std::vector<double> trained;                             ///< the part of `weights` that is trained
  /// The part of `forward` whose gradient returns. The rest, frozen layers in front, may run ahead into the
  /// next step: nothing that it waits for changes.
  std::vector<double> returned;
  std::vector<double> crowded_forward, crowded_backward;  ///< LayerPrice::crowded
  std::vector<double> beside_forward, beside_backward;    ///< LayerPrice::beside
  std::vector<double> input_gradient;  ///< the part of `backward` that earlier stages wait for
  std::vector<std::int64_t> parameters, frozen, gradients, buffers, saved;  ///< prefix sums, bytes
  std::vector<double> cut_activation, cut_gradient;  ///< per boundary: bytes of the live set (2.3)
  std::vector<int> cut_activations, cut_gradients;   ///< and the number of its tensors
  std::vector<Exchange> least_in, least_out;  ///< what any stage that begins (ends) here must receive (send)
  double state_ratio = 1;
  OperationCost fixed;  ///< of each stage's operations
  int profiled_devices = 1;
  int nodes = 1;            ///< that may hold stages
  double update_fixed = 0;  ///< seconds per update of a stage
  /// Of the loss, which the last position includes: no choice of layers runs it again or gives back what it
  /// saves.
  double loss_forward = 0;
  std::int64_t loss_saved = 0;
  CrossingTable incoming, outgoing, entering, keeping;
  /// Sparse table: [level][position]; what layers 0..position save plus the workspace of the last of them.
  std::vector<std::vector<std::int64_t>> reach;

  int size() const { return static_cast<int>(forward.size()) - 1; }  ///< N
  double sum(const std::vector<double>& prefix, int begin, int end) const {
    return prefix[static_cast<std::size_t>(end)] - prefix[static_cast<std::size_t>(begin)];
  }
  std::int64_t sum(const std::vector<std::int64_t>& prefix, int begin, int end) const {
    return prefix[static_cast<std::size_t>(end)] - prefix[static_cast<std::size_t>(begin)];
  }
  /// On a device that holds no other stage.
  double crowding(int begin, int end) const {
    return plan::crowding(sum(weights, begin, end), weights.back(), profiled_devices);
  }
  /// Of `replicas` of a stage at least, on one of their nodes: its copies there, and beside them on the only
  /// node the rest of the model.
  double crowding_beside(int begin, int end, int replicas) const {
    const double share = weights.back() > 0 ? sum(weights, begin, end) / weights.back() : 0;
    const int copies = (replicas + nodes - 1) / nodes;
    return plan::crowding_beside(copies * share + (nodes > 1 ? 0 : 1 - share), profiled_devices);
  }
  /// What `replicas` of a stage pay at least for being crowded, in forwards and in backwards.
  OperationCost crowded(int begin, int end, int replicas) const {
    const double own = crowding(begin, end), beside = crowding_beside(begin, end, replicas);
    return {own * sum(crowded_forward, begin, end) + beside * sum(beside_forward, begin, end),
            own * sum(crowded_backward, begin, end) + beside * sum(beside_backward, begin, end)};
  }
  /// Without what a crowded device takes more.
  double compute(int begin, int end) const { return sum(forward, begin, end) + sum(backward, begin, end); }
  /// There and back: what a micro-batch of the next step waits for.
  double way(int begin, int end) const { return sum(returned, begin, end) + sum(backward, begin, end); }
  /// The same as operations of one stage, their fixed costs included.
  double stage_forward(int begin, int end) const { return sum(forward, begin, end) + fixed.forward; }
  double stage_backward(int begin, int end) const { return sum(backward, begin, end) + fixed.backward; }
  double stage_update(int begin, int end) const { return sum(update, begin, end) + update_fixed; }
  double stage_compute(int begin, int end) const {
    return compute(begin, end) + fixed.forward + fixed.backward;
  }
  /// The peak of a micro-batch's forward and backward above all that the stage saves. While a layer works, only
  /// the layers up to it hold something, so a workspace in the middle hides in what is saved behind it.
  std::int64_t transient(int begin, int end) const;
  /// Distinct tensors received from earlier stages, and sent to later ones, each once.
  std::int64_t in_bytes(int begin, int end) const { return incoming.sum(begin, end - begin); }
  std::int64_t out_bytes(int begin, int end) const { return outgoing.sum(end, end - begin); }
  /// The part of in_bytes() that a forward may leave behind for the backward (kept_inputs.h).
  std::int64_t kept_bytes(int begin, int end) const { return keeping.sum(begin, end - begin); }
  /// The part of `saved` that is a tensor from an earlier stage.
  std::int64_t entering_bytes(int begin, int end) const { return entering.sum(begin, end - begin); }
};

/// So many boundaries, nothing between them and no workspace.
Chain empty_chain(int boundaries);

/// `prices` are per layer of the graph, `loss` is added to the last position. O(layers + sum of tensor
/// lifetimes).
Chain make_chain(const PlanGraph& graph, std::vector<int> order, std::span<const LayerPrice> prices,
                 const LayerPrice& loss, const OptimizerCost& optimizer);

}  // namespace pp::plan
