#include "libplan/search/improve/covering_windows.h"

#include <algorithm>
#include <cmath>

#include "libplan/cost/links.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

/// Turns. An asynchronous stage that runs further ahead is not worth its memory.
constexpr int kMostAhead = 64;

/// Of one micro-batch, there and back.
struct CrossedWindow {
  double trip = 0;      ///< seconds between operations, over the slowest pair of workers
  double occupied = 0;  ///< of a port, in its busier direction, per micro-batch of the stream
  double handled = 0;   ///< of a device at either end
};

CrossedWindow crossing(const StageEdge& edge, const Assignment& assignment, const Cluster& cluster) {
  const std::vector<int>& from = assignment.stage_workers[index(edge.from)];
  const std::vector<int>& to = assignment.stage_workers[index(edge.to)];
  const auto activation = static_cast<double>(edge.activation.value);
  const auto gradient = static_cast<double>(edge.gradient.value);
  const auto device = [&](int worker) { return assignment.worker_devices[at(worker)]; };
  CrossedWindow slowest;
  for (const int sender : from) {
    for (const int receiver : to) {
      const Link link = link_between(cluster, device(sender), device(receiver));
      const double forward = handling_time(activation, edge.activation_tensors, link);
      const double backward = handling_time(gradient, edge.gradient_tensors, link);
      const double there = transfer_time(activation, edge.activation_tensors, link) - 2 * forward;
      const double back = transfer_time(gradient, edge.gradient_tensors, link) - 2 * backward;
      slowest.trip = std::max(slowest.trip, std::max(there, 0.0) + std::max(back, 0.0));
      slowest.handled = std::max(slowest.handled, forward + backward);
      const double busier =
          link.duplex == Duplex::half ? activation + gradient : std::max(activation, gradient);
      slowest.occupied = std::max(slowest.occupied, occupancy(busier, link));
    }
  }
  slowest.occupied /= static_cast<double>(std::min(from.size(), to.size()));
  return slowest;
}

struct Rhythm {
  std::vector<double> work;   ///< per stage, seconds of a replica per turn; updates included where they recur
  std::vector<double> trips;  ///< per stage, seconds to the next one and back
  double period = 0;          ///< seconds per micro-batch of the busiest stage or port
};

Rhythm rhythm_of(const Finalist& finalist, const Cluster& cluster) {
  const std::vector<StageCosts>& stages = finalist.prediction.stages;
  Rhythm rhythm;
  rhythm.trips.assign(stages.size(), 0);
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const int replicas = finalist.partition[s].replicas;
    Seconds work = stages[s].forward + stages[s].backward;
    if (!finalist.schedule->synchronous)
      work += (stages[s].all_reduce + stages[s].update) / std::max(1, finalist.micro_batches / replicas);
    rhythm.work.push_back(work.count());
  }
  for (const StageEdge& edge : finalist.prediction.edges) {
    const auto [trip, occupied, handled] = crossing(edge, finalist.assignment, cluster);
    rhythm.period = std::max(rhythm.period, occupied);
    for (const StageId end : {edge.from, edge.to}) rhythm.work[index(end)] += handled;
    if (number(edge.to) == number(edge.from) + 1) rhythm.trips[index(edge.from)] = trip;
  }
  for (std::size_t s = 0; s < stages.size(); ++s)
    rhythm.period = std::max(rhythm.period, rhythm.work[s] / finalist.partition[s].replicas);
  return rhythm;
}

}  // namespace

std::vector<std::vector<int>> covering_windows(const Finalist& finalist, const Cluster& cluster) {
  const std::vector<int> replicas = replicas_of(finalist.partition);
  const auto [work, trips, period] = rhythm_of(finalist, cluster);
  const auto turns = [&](double seconds, int workers) {
    if (period <= 0) return 0;
    return static_cast<int>(std::ceil(std::min(seconds / (period * workers), 2.0 * kMostAhead)));
  };
  const bool synchronous = finalist.schedule->synchronous;
  std::vector<int> least(work.size(), 1), tight = least, roomy = least;
  double round_trip = work.back();
  for (std::size_t s = work.size() - 1; s-- > 0;) {
    const int own = replicas[s];
    const auto supplied = [&](const std::vector<int>& windows, int more = 0) {
      return 1 + (windows[s + 1] * replicas[s + 1] + more + own - 1) / own;
    };
    round_trip += work[s] + trips[s];
    least[s] = supplied(least);
    tight[s] = std::max(supplied(tight), turns(round_trip, own));
    // Replicas wait for the last of them in front of an all-reduce.
    const int waiting = synchronous ? 0 : replicas[s + 1] - 1;
    roomy[s] = supplied(roomy, waiting) + turns(trips[s], own);
    if (!synchronous) continue;
    const int all = (finalist.micro_batches + own - 1) / own;
    for (std::vector<int>* windows : {&least, &tight, &roomy}) (*windows)[s] = std::min((*windows)[s], all);
  }
  std::vector<std::vector<int>> result;
  for (const std::vector<int>& windows : {tight, roomy}) {
    const bool too_wide = !synchronous && windows.front() > std::max(kMostAhead, 2 * least.front());
    if (windows != least && !too_wide && std::ranges::count(result, windows) == 0) result.push_back(windows);
  }
  return result;
}

}  // namespace pp::plan
