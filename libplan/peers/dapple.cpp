#include "libplan/peers/dapple.h"

#include <algorithm>
#include <numeric>

#include "libplan/peers/dapple_search.h"
#include "libplan/peers/placement.h"
#include "libplan/search/exact/bottleneck.h"
#include "libprofile/core/index.h"
#include "libprofile/core/text.h"

namespace pp::plan {
namespace {

int profiled_batch(const PeerInput& input) { return static_cast<int>(input.profile.micro_batch_sizes.front()); }

void check_mini_batch(const PeerInput& input, const PeerOptions& options) {
  const int batch = profiled_batch(input);
  if (options.mini_batch >= batch && options.mini_batch % batch == 0) return;
  const int below = options.mini_batch / batch * batch;
  const std::string use =
      (below > 0 ? std::to_string(below) + " or " : std::string()) + std::to_string(below + batch);
  throw Error(ErrorKind::usage, "mini_batch = " + std::to_string(options.mini_batch) +
                                    " is not a multiple of the profile's batch of " + std::to_string(batch) +
                                    " samples, which is DAPPLE's micro-batch; use " + use);
}

void offer(const DappleCosts& costs, const DapplePipeline& pipeline, DappleBest& best) {
  const double latency = costs.latency(pipeline);
  if (latency < best.latency) best = {latency, pipeline};
}

void offer_two_stages(const DappleCosts& costs, DappleBest& best) {
  const int devices = costs.machine.devices();
  for (int count = 1; count < devices; ++count) {
    for (const std::vector<int>& first : placements(costs.machine, std::vector<char>(at(devices)), count)) {
      std::vector<int> others;
      for (int device = 0; device < devices; ++device) {
        if (!std::binary_search(first.begin(), first.end(), device)) others.push_back(device);
      }
      for (int cut = 1; cut < costs.chain.size(); ++cut) offer(costs, {{cut}, {first, others}}, best);
    }
  }
}

/// Compute alone: what the released planner balances straight pipelines by.
class ComputeCost : public StageCost {
 public:
  explicit ComputeCost(const Chain& chain) : chain_(chain) {}
  double stage(int begin, int end, DeviceSpan) const override { return chain_.compute(begin, end); }
  double cut(int, DeviceSpan, CutSide) const override { return 0; }
  bool fits(int, int, DeviceSpan) const override { return true; }

 private:
  const Chain& chain_;
};

/// Each stage takes the next devices / stages devices.
void offer_straight(const DappleCosts& costs, int stages, DappleBest& best) {
  const int devices = costs.machine.devices();
  if (stages > costs.chain.size() || devices % stages != 0) return;
  const int copies = devices / stages;
  if (costs.batches % copies != 0) return;
  SearchSpace space;
  space.layers = costs.chain.size();
  space.devices = space.exact_stages = stages;
  space.max_replicas = 1;
  DapplePipeline pipeline{cuts_of(search_bottleneck(space, ComputeCost(costs.chain)).partition), {}, copies};
  for (int s = 0; s < stages; ++s) {
    std::vector<int>& group = pipeline.devices.emplace_back(at(copies));
    std::iota(group.begin(), group.end(), s * copies);
  }
  offer(costs, pipeline, best);
}

DappleBest best_of(const DappleCosts& costs, PeerStrategy strategy) {
  const int devices = costs.machine.devices();
  DapplePipeline one{{}, {std::vector<int>(at(devices))}};
  std::iota(one.devices.front().begin(), one.devices.front().end(), 0);
  DappleBest best{costs.latency(one), one};
  offer_two_stages(costs, best);
  if (devices > 1) offer_straight(costs, 2, best);
  offer_straight(costs, devices, best);
  if (strategy == PeerStrategy::released) return best;
  search_dapple(costs, 1, best);
  for (int copies = 2; copies < devices; ++copies) {
    if (devices % copies == 0 && costs.batches % copies == 0) search_dapple(costs, copies, best);
  }
  return best;
}

std::vector<PeerStage> stages_of(const PeerInput& input, const LinearOrder& order, const DappleCosts& costs,
                                 const DapplePipeline& pipeline) {
  std::vector<PeerStage> stages;
  for (std::size_t s = 0; s < pipeline.devices.size(); ++s) {
    const int begin = s == 0 ? 0 : pipeline.cuts[s - 1];
    const int end = s < pipeline.cuts.size() ? pipeline.cuts[s] : costs.chain.size();
    const std::vector<int> layers(order.layers.begin() + begin, order.layers.begin() + end);
    const int replicas = static_cast<int>(pipeline.devices[s].size());
    stages.push_back({names_of(input, layers), replicas, Seconds(costs.chain.compute(begin, end) / replicas)});
  }
  return stages;
}

}  // namespace

std::variant<PeerPlan, Infeasible> plan_dapple(const PeerInput& input, const PeerOptions& options) {
  check_mini_batch(input, options);
  const int servers = options.levels.size() > 1 ? options.levels[1].devices : 1;
  const DappleMachine machine{servers, options.levels.front().devices};
  PeerPlan plan = empty_plan(input, options);
  double best = std::numeric_limits<double>::infinity();
  for (const LinearOrder& order : input.orders) {
    const Chain chain = chain_of(input, order);
    const DappleCosts costs{chain, machine, options.mini_batch / profiled_batch(input)};
    const DappleBest found = best_of(costs, options.strategy);
    if (!(found.latency < best)) continue;
    best = found.latency;
    plan.copies = found.pipeline.copies;
    plan.stages = stages_of(input, order, costs, found.pipeline);
  }
  plan.objective = Seconds(best);
  const double work = input.total_compute() * options.mini_batch / profiled_batch(input);
  plan.lower_bound = std::min(plan.objective, Seconds(work / machine.devices()));
  plan.search = (options.strategy == PeerStrategy::released ? "the released planner's candidates over "
                                                            : "exact for stages on consecutive devices over ") +
                counted(std::ssize(input.orders), "layer order");
  return plan;
}

}  // namespace pp::plan
