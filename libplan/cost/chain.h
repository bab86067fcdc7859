// One linear order of a model at one micro-batch size: prefix sums of everything a stage [begin, end) needs, so
// that a stage is priced in O(1). Tensors are sent straight from the producing to each consuming stage.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "libplan/cost/graph.h"
#include "libplan/cost/layer_curve.h"
#include "libplan/cost/layer_sums.h"
#include "libplan/cost/links.h"
#include "libprofile/core/index.h"

namespace pp::plan {

/// Sums over the tensors at a boundary, by how far from it they start or end.
class CrossingTable {
 public:
  explicit CrossingTable(int boundaries = 0) : rows_(at(boundaries)) {}
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
  double state_ratio = 1;      ///< state bytes per byte of trained parameters
  double update_per_byte = 0;  ///< seconds per parameter byte
  double update_fixed = 0;     ///< seconds per update of a stage
  double pace = 1;             ///< as many times as long as these two say: 1, or
  double beside = 1;           ///< where each profiled device updates a whole model at once, at least 1
  double new_version = 1;      ///< where passes hold the weights before
  double gradient_ratio = 1;   ///< bytes of gradients per byte of trained parameters
  /// Members of a device with the same weights (ContextGroup), and with the same experts: they divide what
  /// replicas share. Seconds for each byte that they add up among each other.
  int members = 1, expert_members = 1;
  double sum_per_byte = 0, expert_sum_per_byte = 0;

  /// What each member has of them.
  double each(const TrainedBytes& bytes) const {
    return (bytes.all - bytes.experts) / members + bytes.experts / expert_members;
  }
  /// The same of so many sharing replicas; all, where they share nothing: 0.
  double held(const TrainedBytes& bytes, int replicas) const {
    return replicas > 0 ? each(bytes) / replicas : bytes.all;
  }
  /// `uses`: bytes of gradients beyond one for each trained byte.
  Reduction reduction(const TrainedBytes& trained, double uses, bool sharded) const {
    return {gradient_ratio * (each(trained) + uses / members), each(trained), sharded};
  }
  /// Seconds of an update by so many sharing replicas, and of the members' sum in front of it.
  double update(const TrainedBytes& trained, int sharing) const {
    const double summed = Reduction{gradient_ratio, 1, sharing > 0}.bytes();
    return pace * (update_per_byte * held(trained, sharing) + update_fixed) +
           summed * (sum_per_byte * (trained.all - trained.experts) + expert_sum_per_byte * trained.experts);
  }
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

/// Read-only after make_chain(). Boundaries are 0..N.
struct Chain {
  std::vector<int> order;                            ///< layer at each position
  std::vector<LayerSums> layers;                     ///< by position
  std::vector<LayerSums> upto;                       ///< of everything in front of each boundary
  std::vector<double> cut_activation, cut_gradient;  ///< per boundary: bytes of the live set (2.3)
  std::vector<int> cut_activations, cut_gradients;   ///< and the number of its tensors
  std::vector<Exchange> least_in, least_out;  ///< what any stage that begins (ends) here must receive (send)
  OptimizerCost optimizer{};
  OperationCost fixed;  ///< of each stage's operations
  int profiled_devices = 1;
  int nodes = 1;  ///< that may hold stages
  /// The same with the times of each kind of device (Device::profile); empty: all devices have those here.
  std::vector<Chain> kinds = {};
  /// Of the loss, which the last position includes: no choice of layers runs it again or gives back what it
  /// saves.
  LayerSums loss;
  CrossingTable incoming, outgoing, entering, keeping;
  /// Sparse table: [level][position]; what layers 0..position save plus the workspace of the last of them.
  std::vector<std::vector<std::int64_t>> reach;
  std::vector<std::int64_t> workspaces;  ///< by position; then the loss's
  /// Up to each position, those in front of which stands a layer that runs later: a stage runs its layers in
  /// the order of the model.
  std::vector<int> descents;
  /// Where there are such, `reach` with the layers in the order of the model.
  std::vector<std::vector<std::int64_t>> model_reach;
  /// The next settled boundary at or behind each boundary, and the last one at or before it: in front of a
  /// settled one stand the first layers of the model.
  std::vector<int> settled_behind, settled_before;

  int size() const { return static_cast<int>(upto.size()) - 1; }  ///< N
  const Chain& of_kind(int kind) const { return kinds.empty() ? *this : kinds[at(kind)]; }
  /// Of a stage, in O(1): for the searches.
  LayerSums between(int begin, int end) const { return before(end) - before(begin); }
  /// The same added up layer by layer, so that equal layers come to equal bits wherever they stand: what the
  /// simulator is given. O(layers of the stage).
  LayerSums total(int begin, int end) const;
  /// Its passes, each layer crowded by itself: what a layer takes less may be nearly all of it.
  PassTimes total_passes(int begin, int end, const Crowding& share) const;
  /// What `replicas` of a stage pay at least for being crowded: its device holds no other stage; on one of its
  /// nodes stand its copies there, and beside them on the only node the rest of the model.
  Crowding crowding(int begin, int end, int replicas) const {
    const auto all = static_cast<double>(upto.back().parameters);
    const auto held = static_cast<double>(before(end).parameters - before(begin).parameters);
    const double share = all > 0 ? held / all : 0;
    const int copies = (replicas + nodes - 1) / nodes;
    return {plan::crowding(held, all, profiled_devices),
            plan::crowding_beside(copies * share + (nodes > 1 ? 0 : 1 - share), profiled_devices)};
  }
  /// between(begin, end).passes(share), and nothing else.
  PassTimes passes(int begin, int end, const Crowding& share) const {
    const LayerSums &front = before(begin), &back = before(end);
    return back.times - front.times + share.own * (back.crowded - front.crowded) +
           share.beside * (back.beside - front.beside);
  }
  /// Without what a crowded device takes more.
  double compute(int begin, int end) const {
    return before(end).times.forward - before(begin).times.forward +
           (before(end).times.backward - before(begin).times.backward);
  }
  /// There and back: what a micro-batch of the next step waits for.
  double way(int begin, int end) const {
    return before(end).returned - before(begin).returned +
           (before(end).times.backward - before(begin).times.backward);
  }
  /// The same as operations of one stage, their fixed costs included.
  double stage_forward(int begin, int end) const {
    return before(end).times.forward - before(begin).times.forward + fixed.forward;
  }
  /// Of a share of the weights, where replicas divide the update.
  double stage_update(int begin, int end, int sharers = 0) const {
    return optimizer.update(trained_bytes(begin, end), sharers);
  }
  TrainedBytes trained_bytes(int begin, int end) const {
    const LayerSums &front = before(begin), &back = before(end);
    return {static_cast<double>(back.trained() - front.trained()),
            static_cast<double>(back.experts - front.experts)};
  }
  std::int64_t trained(int begin, int end) const { return before(end).trained() - before(begin).trained(); }
  /// Of every gradient, as passed on and added up: each use of a parameter has one.
  Reduction reduction(int begin, int end, bool sharded) const {
    return optimizer.reduction(trained_bytes(begin, end),
                               static_cast<double>(gradients(begin, end) - trained(begin, end)), sharded);
  }
  std::int64_t gradients(int begin, int end) const { return before(end).gradients - before(begin).gradients; }
  double stage_compute(int begin, int end) const {
    return compute(begin, end) + fixed.forward + fixed.backward;
  }
  /// The peak of a micro-batch's forward and backward above all that the stage saves. While a layer works, only
  /// the layers up to it hold something, so a workspace in the middle hides in what is saved behind it. O(1)
  /// between settled boundaries, else O(n log n) in the layers of the stage outside them.
  std::int64_t transient(int begin, int end) const;
  /// Distinct tensors received from earlier stages, and sent to later ones, each once.
  std::int64_t in_bytes(int begin, int end) const { return incoming.sum(begin, end - begin); }
  std::int64_t out_bytes(int begin, int end) const { return outgoing.sum(end, end - begin); }
  /// The part of in_bytes() that a forward may leave behind for the backward (graph.h).
  std::int64_t kept_bytes(int begin, int end) const { return keeping.sum(begin, end - begin); }
  /// The part of `saved` that is a tensor from an earlier stage.
  std::int64_t entering_bytes(int begin, int end) const { return entering.sum(begin, end - begin); }

 private:
  bool ascends(int begin, int end) const { return descents[at(end) - 1] == descents[at(begin)]; }
  /// While layers run in the order of the model, with what is saved in front of them.
  std::int64_t most_held(int begin, int end) const;
  const LayerSums& before(int boundary) const { return upto[at(boundary)]; }
};

/// `boundaries` boundaries, nothing between them and no workspace.
Chain empty_chain(int boundaries);

/// `prices` are per layer of the graph, `loss` is added to the last position. O(layers + sum of tensor
/// lifetimes).
Chain make_chain(const PlanGraph& graph, std::vector<int> order, std::span<const LayerPrice> prices,
                 const LayerPrice& loss, const OptimizerCost& optimizer);

}  // namespace pp::plan
