#include "libplan/peers/dapple_cost.h"

#include <algorithm>
#include <set>

namespace pp::plan {
namespace {

constexpr double kInsideServer = 25e9;  ///< bytes per second, as all three
constexpr double kCollectives = 3e9;    ///< between servers
constexpr double kPointToPoint = 1e9;   ///< between servers

std::set<int> servers_of(const DappleMachine& machine, const std::vector<int>& devices) {
  std::set<int> servers;
  for (const int device : devices) servers.insert(machine.server(device));
  return servers;
}

}  // namespace

double all_reduce_per_byte(const DappleMachine& machine, const std::vector<int>& devices) {
  const int count = static_cast<int>(devices.size());
  if (count == 1) return 0;
  const double ring = 2.0 * (count - 1) / count;
  if (servers_of(machine, devices).size() > 1) return ring / kCollectives;
  return ring / kInsideServer / (count / 2);
}

double transfer_per_byte(const DappleMachine& machine, const std::vector<int>& from,
                         const std::vector<int>& to) {
  const std::set<int> receivers = servers_of(machine, to);
  if (receivers.size() > 1) return 1 / kCollectives;
  const auto outside = std::count_if(from.begin(), from.end(),
                                     [&](int device) { return receivers.count(machine.server(device)) == 0; });
  if (outside == 0) return 1 / kInsideServer;
  return static_cast<double>(outside) / static_cast<double>(from.size()) / kPointToPoint;
}

double DappleCosts::reduced_bytes(int begin, int end) const {
  return static_cast<double>(chain.between(begin, std::min(end + 1, chain.size())).parameters);
}

double DappleCosts::latency(const DapplePipeline& pipeline) const {
  std::vector<int> ends = pipeline.cuts;
  ends.push_back(chain.size());
  const double micro_batches = static_cast<double>(batches) / pipeline.copies;
  double block = 0;
  double transfers = 0;
  for (std::size_t s = 0; s < ends.size(); ++s) {
    const int begin = s == 0 ? 0 : ends[s - 1];
    const auto replicas = static_cast<double>(pipeline.devices[s].size());
    block = std::max(block, compute(begin, ends[s]) / replicas);
    if (s + 1 == ends.size()) break;
    const double transfer =
        transfer_per_byte(machine, pipeline.devices[s], pipeline.devices[s + 1]) * activation(ends[s]);
    block = std::max(block, transfer);
    transfers += transfer / batches;
  }
  block /= micro_batches;
  double exposed = 0;
  for (std::size_t s = 0; s < ends.size(); ++s) {
    const int begin = s == 0 ? 0 : ends[s - 1];
    const double reduce = all_reduce_per_byte(machine, pipeline.devices[s]) * reduced_bytes(begin, ends[s]);
    exposed = std::max(exposed, reduce - static_cast<double>(s) * block);
  }
  return block * (micro_batches - 1) + compute(0, chain.size()) / batches + transfers + exposed;
}

}  // namespace pp::plan
