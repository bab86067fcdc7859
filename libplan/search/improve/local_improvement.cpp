#include "libplan/search/improve/local_improvement.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "libplan/search/candidates/shapes.h"
#include "libplan/search/simulate_finalist.h"
#include "libprofile/core/error.h"

namespace pp::plan {
namespace {

constexpr std::size_t kMostMoved = 12;  ///< layers at once: about a block of a residual network

constexpr double kRounding = 1e-9;  ///< relative; of sums in another order

std::size_t at(int i) { return static_cast<std::size_t>(i); }

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
std::int64_t operations_of(const Finalist& finalist) {
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

/// Takes every change that helps, stage by stage.
class Improver {
 public:
  Improver(Finalist& best, const PricingContext& context, const PlanRequest& request, int devices,
           std::int64_t& operations)
      : best_(best),
        context_(context),
        request_(request),
        devices_(devices),
        operations_(operations),
        shape_(shape_of(best)) {
    for (const Device& device : context.cluster.devices) fastest_ = std::max(fastest_, device.speed);
  }

  void run() {
    for (bool improved = true; improved;) {
      improved = has_free_windows(best_, request_) && change_windows();
      for (int s = 0; s + 1 < shape_.stages(); ++s) {
        for (const auto& [from, to] : {std::pair(s, s + 1), std::pair(s + 1, s)}) {
          if (request_.cuts.empty()) improved |= move_layers(from, to);
          if (has_replicas()) improved |= move_replica(from, to);
        }
      }
      // Last, so that what fewer devices lead to is on the way.
      for (int s = 0; !improved && has_replicas() && s < shape_.stages(); ++s) improved = add_replica(s);
    }
  }

 private:
  /// Layer by layer, those next to the cut first.
  bool move_layers(int from, int to) {
    std::vector<int> layers = shape_.layers[at(from)];
    if (from < to) std::ranges::reverse(layers);
    bool improved = false;
    for (const int layer : layers) {
      const std::vector<int> moving = moving_layers(context_.graph, shape_, layer, from, to);
      if (!moving.empty()) improved |= attempt(with_layers_moved(shape_, moving, from, to));
    }
    return improved;
  }

  /// Whether they are the planner's to choose, stage by stage.
  bool has_replicas() const { return request_.replicas.empty() && is_free(best_, request_); }

  bool may_add(int replicas) const {
    if (request_.max_replicas > 0 && replicas >= request_.max_replicas) return false;
    return !best_.assignment.synchronous || replicas < best_.micro_batches;
  }

  bool move_replica(int from, int to) {
    if (shape_.replicas[at(from)] == 1 || !may_add(shape_.replicas[at(to)])) return false;
    StageShape shape = shape_;
    --shape.replicas[at(from)];
    ++shape.replicas[at(to)];
    shape.windows.clear();  // they followed the replicas
    return attempt(std::move(shape));
  }

  /// On the first device that has no work yet.
  bool add_replica(int stage) {
    if (!may_add(shape_.replicas[at(stage)])) return false;
    int spare = 0;
    while (std::ranges::count(best_.devices, spare) > 0) ++spare;
    if (spare >= devices_) return false;
    StageShape shape = shape_;
    ++shape.replicas[at(stage)];
    shape.windows.clear();
    const int workers = std::accumulate(shape.replicas.begin(), shape.replicas.begin() + stage + 1, 0);
    std::vector<int> devices = best_.devices;
    devices.insert(devices.begin() + workers - 1, spare);
    return attempt(std::move(shape), std::move(devices));
  }

  /// One more or less in flight in one stage, or, which covers longer ways for the tensors that follow, in it
  /// and all in front.
  bool change_windows() {
    bool improved = false;
    for (int s = 0; s < shape_.stages(); ++s) {
      for (int first = s; first >= 0; first -= std::max(s, 1)) {
        for (const int by : {-1, 1, 2, 4, 8}) improved |= change_windows(first, s, by);
      }
    }
    return improved;
  }

  bool change_windows(int first, int last, int by) {
    StageShape shape = shape_;
    if (shape.windows.empty()) shape.windows = windows(WindowRule::win, shape.replicas);
    for (int s = first; s <= last; ++s) {
      if ((shape.windows[at(s)] += by) < 1) return false;
    }
    return attempt(std::move(shape));
  }

  /// Whether the layers of one stage alone take as long as the best step.
  bool is_overloaded(const StageShape& shape) const {
    if (!context_.model.scale.empty()) return false;  // the rounds of a replica differ
    for (int s = 0; s < shape.stages(); ++s) {
      double work = context_.model.fixed.forward + context_.model.fixed.backward;
      for (const int layer : shape.layers[at(s)]) work += least_work(context_.model.layers[at(layer)]);
      if (s + 1 == shape.stages()) work += least_work(context_.model.loss);
      const double micro_batches = best_.micro_batches;
      const double turns = micro_batches / shape.replicas[at(s)];
      const double busy = (best_.assignment.synchronous ? std::ceil(turns) : turns) * work / fastest_;
      if (busy > best_.ranked_step() * (1 + kRounding)) return true;
    }
    return false;
  }

  /// Prices the shape and keeps it if it ranks before by its step.
  bool attempt(StageShape shape) { return attempt(std::move(shape), best_.devices); }

  bool attempt(StageShape shape, std::vector<int> devices) {
    if (operations_ <= 0 || is_overloaded(shape)) return false;
    Finalist other = best_;
    other.devices = std::move(devices);
    reshape(other, shape);
    try {
      simulate_finalist(other, context_, request_);
      operations_ -= operations_of(other);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::data) throw;
      operations_ -= operations_of(best_);
      return false;  // a window too large for the stage in front: a deadlock
    }
    if (other.endless || other.short_by > Bytes(0)) return false;
    if (other.ranked_step() >= best_.ranked_step()) return false;
    best_ = std::move(other);
    shape_ = std::move(shape);
    return true;
  }

  Finalist& best_;
  const PricingContext& context_;
  const PlanRequest& request_;
  int devices_;
  std::int64_t& operations_;
  StageShape shape_;
  double fastest_ = 0;  ///< speed of any device
};

}  // namespace

std::vector<int> moving_layers(const PlanGraph& graph, const StageShape& shape, int layer, int from, int to) {
  const std::vector<int>& stage = shape.layers[at(from)];
  if (!std::ranges::binary_search(stage, layer)) return {};
  std::vector<int> moving{layer};
  for (std::size_t i = 0; i < moving.size(); ++i) {
    const GraphLayer& node = graph.layers[at(moving[i])];
    for (const int neighbour : from < to ? node.consumers : node.producers) {
      if (std::ranges::binary_search(stage, neighbour) && std::ranges::count(moving, neighbour) == 0)
        moving.push_back(neighbour);
    }
    if (moving.size() > kMostMoved || moving.size() == stage.size()) return {};
  }
  const auto torn = [&](const std::vector<int>& group) {
    return std::ranges::any_of(group, [&](int member) { return std::ranges::count(moving, member) > 0; });
  };
  if (std::ranges::any_of(graph.tied, torn)) return {};
  return moving;
}

void improve_locally(Finalist& finalist, const PricingContext& context, const PlanRequest& request, int devices,
                     std::int64_t& operations) {
  Improver(finalist, context, request, devices, operations).run();
}

}  // namespace pp::plan
