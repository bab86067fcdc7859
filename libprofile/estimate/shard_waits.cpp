#include "libprofile/estimate/shard_waits.h"

#include <algorithm>
#include <cmath>

#include "libprofile/core/blocks.h"
#include "libprofile/core/index.h"

namespace pp::profile {
namespace {

/// Computing and moving since a pass began: a unit's gather begins with the computation of the unit before it,
/// the reduction of its gradients when it is computed.
class Queues {
 public:
  /// What a unit waits until its weights are there; then it computes.
  double add(double gather, double compute, double reduce) {
    if (gather > 0) moved_ = std::max(moved_, before_) + gather;
    const double wait = gather > 0 ? std::max(0.0, moved_ - computed_) : 0;
    if (reduce_ > 0) moved_ = std::max(moved_, computed_) + reduce_;
    reduce_ = reduce;
    before_ = computed_;
    computed_ += wait + compute;
    return wait;
  }
  /// What moving takes beyond the last computation.
  double rest() const { return std::max(moved_, computed_) + reduce_ - computed_; }

 private:
  double computed_ = 0, before_ = 0;  ///< ends of the newest unit and of the one before it
  double moved_ = 0;
  double reduce_ = 0;  ///< of the newest unit
};

}  // namespace

double sent_of_gradients(const TrainerSpec& trainer, DType dtype) {
  if (trainer.gradients == GradientType::weights) return 1;
  return std::max(1.0, size_of(DType::float32) / static_cast<double>(size_of(dtype)));
}

std::vector<ShardUnit> shard_units(const ResolvedModel& model, std::span<const double> weights,
                                   std::span<const double> trained, double sent) {
  std::vector<ShardUnit> units;
  const auto add = [&](int begin, int end, bool block) {
    if (begin == end) return;
    ShardUnit unit{.begin = begin, .end = end, .block = block};
    for (int l = begin; l < end; ++l) {
      if (model.layers[at(l)].backward && unit.first_backward < 0) unit.first_backward = l;
      unit.gathered += weights[at(l)];
      unit.gradients += trained[at(l)];
    }
    unit.reduced = sent * unit.gradients;
    units.push_back(unit);
  };
  int next = 0;
  for (const Block& block : blocks_of(model.graph)) {
    add(next, block.begin, false);
    add(block.begin, block.end, true);
    next = block.end;
  }
  add(next, model.layer_count(), false);
  return units;
}

std::vector<LayerTime> shard_waits(std::span<const LayerTime> times, std::span<const ShardUnit> units,
                                   const ShardWays& ways) {
  std::vector<LayerTime> waits(times.size());
  const int degree = ways.group.degree;
  const double latency = std::ceil(std::log2(degree)) * ways.link.latency.count();
  const auto moving = [&](double bytes) {
    return bytes == 0 ? 0 : latency + (degree - 1) * occupancy(bytes, ways.link) / degree;
  };
  Queues forward, backward;
  LayerTime* last = nullptr;
  for (const ShardUnit& unit : units) {
    Seconds forwards{}, backwards{};
    for (int l = unit.begin; l < unit.end; ++l) {
      forwards += times[at(l)].forward;
      backwards += times[at(l)].input_gradient + times[at(l)].weight_gradient;
    }
    const auto wait = [&](Queues& queues, double gather, Seconds computing, double reduce) {
      const double still = ways.contention * std::min(computing.count(), gather + reduce);
      return Seconds(queues.add(gather, computing.count() + still, reduce) + still);
    };
    const double gather = moving(unit.gathered);
    waits[at(unit.begin)].forward = wait(forward, gather, forwards, 0);
    if (unit.first_backward < 0) continue;
    if (unit.block && ways.again) backwards += forwards;
    last = &waits[at(unit.first_backward)];
    last->input_gradient =
        wait(backward, unit.stays(ways.group.sharding) ? 0 : gather, backwards, moving(unit.reduced));
  }
  if (last != nullptr) last->input_gradient += Seconds(backward.rest());
  return waits;
}

}  // namespace pp::profile
