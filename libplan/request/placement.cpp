#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <string_view>
#include <tuple>

#include "libplan/request/device_orders.h"
#include "libplan/request/request.h"
#include "libprofile/core/index.h"

namespace pp::plan {

namespace {

/// What devices that hand over by reference have in common: hand_over().
Hardware neighbourhood_of(const Device& device) {
  return {device.kind, device.node, device.kind == DeviceKind::cpu ? 0 : device.index};
}

/// Collects device_sets().
class DeviceSets {
 public:
  DeviceSets(const Cluster& cluster, const PlanRequest& request, std::span<const double> rates)
      : cluster_(cluster), request_(request), rates_(rates) {}

  std::vector<DeviceSet> make() {
    std::map<Hardware, const Device*> first;
    for (const Device& device : cluster_.devices) first.try_emplace(hardware_of(device), &device);
    add_classes(SharedMemory::whole);
    if (first.size() < cluster_.devices.size()) {
      add(SharedMemory::whole, [&](const Device& device) { return first.at(hardware_of(device)) == &device; });
      add_classes(SharedMemory::parts);
    }
    const Placement placement = request_.placement;
    if (placement != Placement::scatter && placement != Placement::fresh) add_neighbours();  // one node alone
    for (DeviceSet& set : sets_) arrange(cluster_, request_.placement, set.positions);
    return std::move(sets_);
  }

 private:
  /// All devices, then those that are as fast and as large at least as one of them.
  void add_classes(SharedMemory shared) {
    const std::vector<std::int64_t> bytes = usable_bytes(cluster_, request_, shared);
    const auto usable = [&](const Device& device) { return bytes[at(&device - cluster_.devices.data())]; };
    add(shared, [](const Device&) { return true; });
    std::set<std::int64_t> sizes(bytes.begin(), bytes.end());
    std::set<double> speeds;
    const auto speed_of = [&](const Device& device) { return rates_[at(device.profile)] * device.speed; };
    for (const Device& device : cluster_.devices) speeds.insert(speed_of(device));
    for (const double speed : speeds) {
      for (const std::int64_t size : sizes)
        add(shared, [&](const Device& device) { return speed_of(device) >= speed && usable(device) >= size; });
    }
  }

  /// The largest number of devices that hand over by reference, where others do not.
  void add_neighbours() {
    const auto reference = [](const Device& a, const Device& b) {
      return hand_over(a, b) == HandOver::reference;
    };
    std::map<Hardware, int> near;
    for (const Device& device : cluster_.devices) ++near[neighbourhood_of(device)];
    const Device* best = nullptr;
    int most = 1;
    for (const Device& device : cluster_.devices) {
      const int count = near.at(neighbourhood_of(device));
      if (count > most) most = count, best = &device;
    }
    if (best != nullptr)
      add(SharedMemory::whole, [&](const Device& device) { return reference(*best, device); });
  }

  void add(SharedMemory shared, const std::function<bool(const Device&)>& takes) {
    const std::vector<std::int64_t> bytes = usable_bytes(cluster_, request_, shared);
    DeviceSet set{{}, shared, 1, std::numeric_limits<double>::infinity(), 0, {}, {}};
    set.limit.context = request_.context_bytes.value;
    std::map<Hardware, int> sharers;
    for (std::size_t i = 0; i < cluster_.devices.size(); ++i) {
      const Device& device = cluster_.devices[i];
      if (!takes(device)) continue;
      set.positions.push_back(static_cast<int>(i));
      set.speed = std::min(set.speed, device.speed);
      set.best_speed = std::max(set.best_speed, device.speed);
      set.limit.bytes = std::min(set.limit.bytes, bytes[i]);
      set.sharers = std::max(set.sharers, ++sharers[hardware_of(device)]);
    }
    const auto known = [&](const DeviceSet& other) {
      return other.positions == set.positions && other.shared == set.shared;
    };
    if (set.positions.empty() || std::ranges::any_of(sets_, known)) return;
    set.limit.in = set.limit.out = hand_over(cluster_, set.positions);
    sets_.push_back(std::move(set));
  }

  const Cluster& cluster_;
  const PlanRequest& request_;
  const std::span<const double> rates_;
  std::vector<DeviceSet> sets_;
};

}  // namespace

std::vector<std::int64_t> usable_bytes(const Cluster& cluster, const PlanRequest& request,
                                       SharedMemory shared) {
  std::map<Hardware, std::int64_t> sharers;
  for (const Device& device : cluster.devices) ++sharers[hardware_of(device)];
  std::vector<std::int64_t> bytes;
  for (const Device& device : cluster.devices) {
    const std::int64_t parts = shared == SharedMemory::parts ? sharers.at(hardware_of(device)) : 1;
    const std::int64_t whole = usable_bytes(device, request);
    bytes.push_back(whole == std::numeric_limits<std::int64_t>::max() ? whole : whole / parts);
  }
  return bytes;
}

std::vector<DeviceSet> device_sets(const Cluster& cluster, const PlanRequest& request,
                                   std::span<const double> rates) {
  return DeviceSets(cluster, request, rates).make();
}

}  // namespace pp::plan
