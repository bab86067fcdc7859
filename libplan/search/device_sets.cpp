#include <algorithm>
#include <functional>
#include <limits>
#include <set>

#include "libplan/search/device_orders.h"
#include "libplan/search/request.h"

namespace pp::plan {
namespace {

/// Collects device_sets().
class DeviceSets {
 public:
  DeviceSets(const Cluster& cluster, const PlanRequest& request) : cluster_(cluster), request_(request) {}

  std::vector<DeviceSet> make() {
    const auto is_first = [&](const Device& device) {
      const auto same = [&](const Device& other) { return share_memory(other, device); };
      return &*std::ranges::find_if(cluster_.devices, same) == &device;
    };
    add_classes(SharedMemory::whole);
    if (!std::ranges::all_of(cluster_.devices, is_first)) {
      add(SharedMemory::whole, is_first);
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
    const auto usable = [&](const Device& device) {
      return bytes[static_cast<std::size_t>(&device - cluster_.devices.data())];
    };
    add(shared, [](const Device&) { return true; });
    std::set<std::int64_t> sizes(bytes.begin(), bytes.end());
    std::set<double> speeds;
    for (const Device& device : cluster_.devices) speeds.insert(device.speed);
    for (const double speed : speeds) {
      for (const std::int64_t size : sizes)
        add(shared, [&](const Device& device) { return device.speed >= speed && usable(device) >= size; });
    }
  }

  /// The largest number of devices that hand over by reference, where others do not.
  void add_neighbours() {
    const auto reference = [](const Device& a, const Device& b) {
      return hand_over(a, b) == HandOver::reference;
    };
    const Device* best = nullptr;
    std::ptrdiff_t most = 1;
    for (const Device& device : cluster_.devices) {
      const auto near = std::ranges::count_if(cluster_.devices,
                                              [&](const Device& other) { return reference(device, other); });
      if (near > most) most = near, best = &device;
    }
    if (best != nullptr)
      add(SharedMemory::whole, [&](const Device& device) { return reference(*best, device); });
  }

  /// Devices of the set that are this one.
  int sharers(const DeviceSet& set, const Device& device) const {
    return static_cast<int>(std::ranges::count_if(set.positions, [&](int position) {
      return share_memory(cluster_.devices[static_cast<std::size_t>(position)], device);
    }));
  }

  void add(SharedMemory shared, const std::function<bool(const Device&)>& takes) {
    const std::vector<std::int64_t> bytes = usable_bytes(cluster_, request_, shared);
    DeviceSet set{{}, shared, 1, std::numeric_limits<double>::infinity(), 0, {}};
    set.limit.context = request_.context_bytes.value;
    for (std::size_t i = 0; i < cluster_.devices.size(); ++i) {
      const Device& device = cluster_.devices[i];
      if (!takes(device)) continue;
      set.positions.push_back(static_cast<int>(i));
      set.speed = std::min(set.speed, device.speed);
      set.best_speed = std::max(set.best_speed, device.speed);
      set.limit.bytes = std::min(set.limit.bytes, bytes[i]);
      set.sharers = std::max(set.sharers, sharers(set, device));
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
  std::vector<DeviceSet> sets_;
};

}  // namespace

std::vector<std::int64_t> usable_bytes(const Cluster& cluster, const PlanRequest& request,
                                       SharedMemory shared) {
  std::vector<std::int64_t> bytes;
  for (const Device& device : cluster.devices) {
    const auto one = [&](const Device& other) { return share_memory(device, other); };
    const std::int64_t parts =
        shared == SharedMemory::parts ? std::ranges::count_if(cluster.devices, one) : std::int64_t{1};
    const std::int64_t whole = usable_bytes(device, request);
    bytes.push_back(whole == std::numeric_limits<std::int64_t>::max() ? whole : whole / parts);
  }
  return bytes;
}

std::vector<DeviceSet> device_sets(const Cluster& cluster, const PlanRequest& request) {
  return DeviceSets(cluster, request).make();
}

}  // namespace pp::plan
