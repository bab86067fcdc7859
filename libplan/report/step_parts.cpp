#include "libplan/report/step_parts.h"

#include <algorithm>
#include <map>
#include <span>

#include "libplan/cost/links.h"
#include "libplan/price/predict.h"
#include "libplan/search/planner.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

/// `whole` - `part`, without the rounding of sums.
Seconds remainder(Seconds whole, Seconds part) {
  constexpr double kRounding = 1e-9;
  const Seconds rest = whole - part;
  return rest > kRounding * whole ? rest : Seconds{};
}

SimulationInput without_links(SimulationInput input) {
  input.links.clear();
  input.all_reduce = AllReduceMode::free;
  return input;
}

/// From or to one worker or shared network card, all its messages of a step.
std::map<std::string, Seconds> port_loads(const Plan& plan) {
  const Cluster cluster = cluster_of(plan);
  const auto position = [&](WorkerId id) {
    const DeviceId device = plan.workers[index(id)].device;
    return static_cast<int>(std::ranges::find(cluster.devices, device, &Device::id) - cluster.devices.begin());
  };
  const NetworkCards cards = network_cards(cluster);
  std::map<std::string, Seconds> loads;
  for (const LinkPrediction& sent : plan.predicted.links) {
    const Link link = link_between(cluster, position(sent.from), position(sent.to));
    const Seconds time(occupancy(static_cast<double>(sent.bytes_per_step.value), link));
    const auto add = [&](const std::string& what, const std::string& whose, int from, int to) {
      const bool half = link.duplex == Duplex::half;
      loads[what + (half ? " of " : " into ") + whose + std::to_string(to)] += time;
      loads[what + (half ? " of " : " out of ") + whose + std::to_string(from)] += time;
    };
    add("the link", "worker ", number(sent.from), number(sent.to));
    const int from = position(sent.from), to = position(sent.to);
    if (!cards.between(from, to)) continue;
    const auto card = [&](int device) { return cards.of[at(device)]; };
    add("the network card", cards.per_group > 1 ? "card " : "node ", card(from), card(to));
  }
  return loads;
}

/// Whether the layers follow each other in the model's file.
bool is_range(const Plan& plan, const std::vector<std::string>& layers) {
  const auto first = std::ranges::find(plan.model.layers, layers.front(), &Layer::name);
  return plan.model.layers.end() - first >= std::ssize(layers) &&
         std::ranges::equal(layers, std::span(first, layers.size()), {}, {}, &Layer::name);
}

/// `stage 0 (a)`, `stage 0 (a .. c)`, or, where b runs elsewhere, `stage 0 (a .. c, 2 layers)`
std::string stage_name(const Plan& plan, std::size_t s) {
  const std::vector<std::string>& layers = plan.stages[s].layers;
  std::string range = layers.front();
  if (layers.size() > 1) range += " .. " + layers.back();
  if (!is_range(plan, layers)) range += ", " + std::to_string(layers.size()) + " layers";
  return "stage " + std::to_string(s) + " (" + range + ")";
}

}  // namespace

StepParts step_parts(const Plan& plan) {
  const bool synchronous = require_schedule(plan.schedule.name).synchronous;
  const int updates = synchronous ? 1 : steady_updates(plan);
  const SimulationInput free = without_links(simulation_input(plan, updates));
  const Seconds step = synchronous ? chained_period(free) : steady_period(free) * plan.training.micro_batches;
  const std::vector<Seconds> busy = simulate(free).busy;
  const Seconds compute = *std::ranges::max_element(busy) / updates;
  return {compute, remainder(plan.predicted.step, std::max(step, compute)), remainder(step, compute)};
}

std::vector<Load> loads_of(const Plan& plan) {
  std::vector<Load> loads;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    Load load{stage_name(plan, s), {}};
    for (const WorkerId worker : plan.stages[s].workers)
      load.busy = std::max(load.busy, plan.predicted.workers[index(worker)].busy);
    loads.push_back(std::move(load));
  }
  const std::map<std::string, Seconds> ports = port_loads(plan);
  const auto busiest = std::ranges::max_element(ports, {}, [](const auto& port) { return port.second; });
  if (busiest != ports.end() && busiest->second > Seconds{}) loads.push_back({busiest->first, busiest->second});
  return loads;
}

}  // namespace pp::plan
