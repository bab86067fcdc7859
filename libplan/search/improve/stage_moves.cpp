#include "libplan/search/improve/stage_moves.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>

#include "libplan/cost/constants.h"
#include "libplan/price/simulated.h"
#include "libplan/request/shapes.h"
#include "libplan/search/finalist/simulate_finalist.h"
#include "libplan/search/improve/climb.h"
#include "libprofile/core/error.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

constexpr std::size_t kMostMoved = 12;  ///< layers at once: about a block of a residual network

StageShape shape_of(const Finalist& finalist) {
  return {finalist.assignment.stage_layers, replicas_of(finalist.partition), finalist.windows};
}

/// Gives the finalist stages of this shape, and the linear order in which they are contiguous. In file order
/// within a stage nothing stands before what it reads.
void reshape(Finalist& finalist, const StageShape& shape) {
  finalist.order.clear();
  finalist.partition.clear();
  for (int s = 0; s < shape.stages(); ++s) {
    const int begin = static_cast<int>(finalist.order.size());
    finalist.order.insert(finalist.order.end(), shape.layers[at(s)].begin(), shape.layers[at(s)].end());
    finalist.partition.push_back({begin, static_cast<int>(finalist.order.size()), shape.replicas[at(s)]});
  }
  finalist.windows = shape.windows;
}

StageShape with_layers_moved(StageShape shape, const std::vector<int>& layers, int from, int to) {
  for (const int layer : layers) std::erase(shape.layers[at(from)], layer);
  auto& target = shape.layers[at(to)];
  target.insert(target.end(), layers.begin(), layers.end());
  std::ranges::sort(target);
  return shape;
}

bool is_free(const Finalist& finalist, const PlanRequest& request) {
  return is_free_shape(*finalist.schedule, policy_of(*finalist.schedule, request));
}

/// That a simulation of it runs through.
std::int64_t simulated_operations(const Finalist& finalist) {
  if (!finalist.schedule->synchronous)  // F and B of every stage
    return std::int64_t{2} * finalist.assignment.stages() * steady_length(finalist.assignment);
  std::int64_t count = 0;
  for (const WorkerProgram& worker : finalist.assignment.programs) count += std::ssize(worker.program);
  return count;
}

/// Of one micro-batch under any schedule.
double least_work(const LayerPrice& price) {
  return price.forward + std::min(price.backward, price.input_gradient + price.weight_gradient);
}

/// The changes that a request leaves open.
class StageMoves {
 public:
  StageMoves(const PricingContext& context, const PlanRequest& request, int devices)
      : context_(context), request_(request), devices_(devices), least_{context.model, {}} {
    for (const Device& device : context.cluster.devices) fastest_ = std::max(fastest_, device.speed);
    for (const PricedModel& other : context.model.others) least_ = faster_of(std::move(least_), {other, {}});
  }

  /// Windows, then layers and replicas between neighbours, stage by stage.
  bool between_stages(Climb& climb) const {
    bool improved = has_free_windows(climb.best(), request_) && change_windows(climb);
    for (int s = 0; s + 1 < stages(climb); ++s) {
      for (const auto& [from, to] : {std::pair(s, s + 1), std::pair(s + 1, s)}) {
        if (request_.cuts.empty() && request_.layer_order.empty()) improved |= move_layers(climb, from, to);
        if (has_replicas(climb)) improved |= move_replica(climb, from, to);
      }
    }
    return improved;
  }

  /// A replica of any stage goes to another that is no neighbour.
  bool exchange_replicas(Climb& climb) const {
    bool improved = false;
    for (int from = 0; has_replicas(climb) && from < stages(climb); ++from) {
      for (int to = 0; to < stages(climb); ++to)
        if (std::abs(to - from) > 1) improved |= move_replica(climb, from, to);
    }
    return improved;
  }

  /// A layer of the busiest stage goes to one with less work, wherever in the row that is: a layer moves over
  /// every cut in between.
  bool across_stages(Climb& climb) const {
    if (!request_.cuts.empty() || !request_.layer_order.empty()) return false;
    const Finalist& best = climb.best();
    const auto work = [&](int stage) {
      return best.prediction.workers[at(best.assignment.stage_workers[at(stage)].front())].busy;
    };
    Seconds most{};
    for (int s = 0; s < stages(climb); ++s) most = std::max(most, work(s));
    most *= 1 - kRounding;
    for (int from = 0; from < stages(climb); ++from) {
      for (int to = 0; to < stages(climb); ++to) {
        if (work(from) < most || work(to) >= most || std::abs(to - from) < 2) continue;
        const std::optional<StageShape> shape = with_layer_passed_on(shape_of(best), from, to);
        if (shape && attempt(climb, *shape)) return true;
      }
    }
    return false;
  }

  /// On a device that has no work yet. Last, so that what fewer devices lead to is on the way.
  bool onto_devices(Climb& climb) const {
    if (!has_replicas(climb)) return false;
    for (int s = 0; s < stages(climb); ++s) {
      if (add_replica(climb, s)) return true;
    }
    return false;
  }

  /// Climb::Price.
  bool price(Finalist& other, const Finalist& best, std::int64_t& operations) const {
    if (is_overloaded(other, best) || skips_readers(other, context_.graph)) return false;
    try {
      const bool faster = simulate_finalist(other, context_, request_, best.ranked_step());
      operations -= simulated_operations(other);
      if (!faster) return false;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::data) throw;
      operations -= simulated_operations(best);
      return false;  // a window too large for the stage in front: a deadlock
    }
    return !other.endless && other.short_by <= Bytes(0) && other.ranked_step() < best.ranked_step();
  }

 private:
  static int stages(const Climb& climb) { return static_cast<int>(climb.best().partition.size()); }

  bool attempt(Climb& climb, const StageShape& shape) const {
    Finalist other = climb.best().unpriced();
    reshape(other, shape);
    return climb.attempt(std::move(other));
  }

  /// Every stage on the way hands on what it has next to the cut.
  std::optional<StageShape> with_layer_passed_on(StageShape shape, int from, int to) const {
    const int step = from < to ? 1 : -1;
    for (int s = from; s != to; s += step) {
      const std::vector<int>& layers = shape.layers[at(s)];
      const int layer = step > 0 ? layers.back() : layers.front();
      const std::vector<int> moving = moving_layers(context_.graph, shape, layer, s, s + step);
      if (moving.empty()) return std::nullopt;
      shape = with_layers_moved(std::move(shape), moving, s, s + step);
    }
    return shape;
  }

  /// Layer by layer, those next to the cut first.
  bool move_layers(Climb& climb, int from, int to) const {
    std::vector<int> layers = shape_of(climb.best()).layers[at(from)];
    if (from < to) std::ranges::reverse(layers);
    bool improved = false;
    for (const int layer : layers) {
      const StageShape shape = shape_of(climb.best());
      const std::vector<int> moving = moving_layers(context_.graph, shape, layer, from, to);
      if (!moving.empty()) improved |= attempt(climb, with_layers_moved(shape, moving, from, to));
    }
    return improved;
  }

  /// Whether they are the planner's to choose, stage by stage.
  bool has_replicas(const Climb& climb) const {
    return request_.replicas.empty() && is_free(climb.best(), request_);
  }

  bool may_add(const Finalist& best, int replicas) const {
    if (request_.max_replicas > 0 && replicas >= request_.max_replicas) return false;
    return !best.assignment.synchronous || replicas < best.micro_batches;
  }

  bool move_replica(Climb& climb, int from, int to) const {
    StageShape shape = shape_of(climb.best());
    if (shape.replicas[at(from)] == 1 || !may_add(climb.best(), shape.replicas[at(to)])) return false;
    --shape.replicas[at(from)];
    ++shape.replicas[at(to)];
    shape.windows.clear();  // they followed the replicas
    return attempt(climb, shape);
  }

  /// On the first device that has no work yet.
  bool add_replica(Climb& climb, int stage) const {
    StageShape shape = shape_of(climb.best());
    Finalist other = climb.best().unpriced();
    if (!may_add(climb.best(), shape.replicas[at(stage)])) return false;
    std::vector<int> taken = other.devices;
    std::ranges::sort(taken);
    int spare = 0;
    for (const int device : taken) spare += device == spare ? 1 : 0;
    if (spare >= devices_) return false;
    ++shape.replicas[at(stage)];
    shape.windows.clear();
    const int workers = std::accumulate(shape.replicas.begin(), shape.replicas.begin() + stage + 1, 0);
    other.devices.insert(other.devices.begin() + workers - 1, spare);
    reshape(other, shape);
    return climb.attempt(std::move(other));
  }

  /// One more or less in flight in one stage, or, which covers longer ways for the tensors that follow, in it
  /// and all in front.
  bool change_windows(Climb& climb) const {
    bool improved = false;
    for (int s = 0; s < stages(climb); ++s) {
      for (int first = s; first >= 0; first -= std::max(s, 1)) {
        for (const int by : {-1, 1, 2, 4, 8}) improved |= change_windows(climb, first, s, by);
      }
    }
    return improved;
  }

  bool change_windows(Climb& climb, int first, int last, int by) const {
    StageShape shape = shape_of(climb.best());
    if (shape.windows.empty()) shape.windows = windows(WindowRule::win, shape.replicas);
    for (int s = first; s <= last; ++s) {
      shape.windows[at(s)] += by;
      if (shape.windows[at(s)] < 1) return false;
    }
    return attempt(climb, shape);
  }

  /// Whether the layers of one stage alone take as long as the best step.
  bool is_overloaded(const Finalist& other, const Finalist& best) const {
    if (!context_.model.scale.empty()) return false;  // the rounds of a replica differ
    for (std::size_t s = 0; s < other.partition.size(); ++s) {
      const auto& [begin, end, replicas] = other.partition[s];
      double work = least_.model.fixed.forward + least_.model.fixed.backward;
      for (int p = begin; p < end; ++p) work += least_work(least_.model.layers[at(other.order[at(p)])]);
      if (s + 1 == other.partition.size()) work += least_work(least_.model.loss);
      const double turns = static_cast<double>(best.micro_batches) / replicas;
      const double busy = (best.assignment.synchronous ? std::ceil(turns) : turns) * work / fastest_;
      if (busy > best.ranked_step() * (1 + kRounding)) return true;
    }
    return false;
  }

  const PricingContext& context_;
  const PlanRequest& request_;
  int devices_;
  KindCost least_;      ///< on any kind of device
  double fastest_ = 0;  ///< speed of any device
};

}  // namespace

std::vector<int> moving_layers(const PlanGraph& graph, const StageShape& shape, int layer, int from, int to) {
  const std::vector<int>& stage = shape.layers[at(from)];
  if (!std::ranges::binary_search(stage, layer)) return {};
  std::vector<int> moving{layer};
  const auto add = [&](int other) {
    if (std::ranges::binary_search(stage, other) && std::ranges::count(moving, other) == 0)
      moving.push_back(other);
  };
  std::size_t most = kMostMoved;
  for (std::size_t i = 0; i < moving.size(); ++i) {
    const GraphLayer& node = graph.layers[at(moving[i])];
    for (const int neighbour : from < to ? node.consumers : node.producers) add(neighbour);
    graph.for_each_group([&](const std::vector<int>& group) {
      if (std::ranges::count(group, moving[i]) == 0) return;
      most = std::max(most, group.size());
      for (const int member : group) add(member);
    });
    if (moving.size() > most || moving.size() == stage.size()) return {};
  }
  return moving;
}

void improve_stages(Finalist& finalist, const PricingContext& context, const PlanRequest& request, int devices,
                    std::int64_t& operations) {
  const StageMoves moves(context, request, devices);
  Climb climb(finalist, operations, [&](Finalist& other, const Finalist& best, std::int64_t& left) {
    return moves.price(other, best, left);
  });
  const std::array<Pass, 4> passes{[&](Climb& here) { return moves.between_stages(here); },
                                   [&](Climb& here) { return moves.across_stages(here); },
                                   [&](Climb& here) { return moves.exchange_replicas(here); },
                                   [&](Climb& here) { return moves.onto_devices(here); }};
  run(climb, passes);
}

}  // namespace pp::plan
