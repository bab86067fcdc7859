#include "librun/links/link_meter.h"

#include <algorithm>
#include <string>

#include "libprofile/core/error.h"
#include "libprofile/device/machine.h"
#include "librun/links/link_levels.h"
#include "librun/links/local_links.h"
#include "librun/links/tensor_links.h"

namespace pp::run {

namespace {

std::vector<Device> make_devices(const LinkOptions& options) {
  const std::vector<int> allowed = profile::usable_cores();
  const auto per_device = static_cast<std::size_t>(options.cores_per_device);
  const auto needed = static_cast<std::size_t>(options.devices) * per_device;
  if (options.devices < 2)
    throw Error(ErrorKind::usage, "devices = " + std::to_string(options.devices) + ": a link needs at least 2");
  if (options.cores_per_device < 1) throw Error(ErrorKind::usage, "cores per device must be at least 1");
  if (needed > allowed.size()) {
    throw Error(ErrorKind::device,
                std::to_string(options.devices) + " devices of " + std::to_string(options.cores_per_device) +
                    " cores need " + std::to_string(needed) + " cores, this process may use " +
                    std::to_string(allowed.size()) +
                    "; ask for fewer devices, or describe the machine with --devices and --bandwidth");
  }
  std::vector<Device> devices(static_cast<std::size_t>(options.devices));
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const auto first = allowed.begin() + static_cast<std::ptrdiff_t>(i * per_device);
    devices[i].id = DeviceId{static_cast<int>(i)};
    devices[i].index = static_cast<int>(i);
    devices[i].cores.assign(first, first + static_cast<std::ptrdiff_t>(per_device));
    devices[i].memory = Bytes(profile::machine_memory().value / options.devices);
  }
  return devices;
}

}  // namespace

Cluster measure_links(const LinkOptions& options, const std::function<void(double)>& progress) {
  const std::vector<Device> devices = make_devices(options);
  const int count = options.devices;
  const int measurements = count * (count - 1) / 2 + 1;  // the pairs, and the all-reduce
  int done = 0;
  const auto step = [&] {
    if (progress) progress(static_cast<double>(++done) / measurements);
  };
  std::vector<MeasuredPair> pairs;
  for (int i = 0; i < count; ++i) {
    for (int j = i + 1; j < count; ++j) {
      const auto& first = devices[static_cast<std::size_t>(i)];
      const auto& second = devices[static_cast<std::size_t>(j)];
      pairs.push_back({i, j, sample_pair(first.cores, second.cores, options.sweep)});
      step();
    }
  }
  Cluster cluster = build_cluster(devices, pairs, "process");
  std::vector<SummingDevice> summing;
  for (const Device& device : cluster.devices) summing.push_back({at::kCPU, device.cores});
  LinkSweep sums = options.sweep;
  sums.largest = std::max(sums.largest, options.largest_sum);
  add_all_reduce(cluster, sample_all_reduce(summing, sums));
  step();
  return cluster;
}

}  // namespace pp::run
