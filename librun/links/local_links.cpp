#include "librun/links/local_links.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "libprofile/core/error.h"
#include "libprofile/core/index.h"
#include "libprofile/device/compute_device.h"
#include "libprofile/device/cuda_devices.h"
#include "libprofile/device/machine.h"
#include "librun/links/link_levels.h"
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

std::vector<Device> describe(std::span<const int> indices) {
  std::vector<Device> devices;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    Device& device = devices.emplace_back();
    device.id = DeviceId{static_cast<int>(i)};
    device.kind = DeviceKind::cuda;
    device.index = indices[i];
    device.memory =
        Bytes(profile::cuda_device_memory(indices[i]).value / std::ranges::count(indices, indices[i]));
  }
  return devices;
}

std::string how(int from, int to) {
  if (from == to) return "by reference";
  return profile::cuda_peer_access(from, to) ? "peer copy" : "copy through the host";
}

Cluster measure_local(const std::vector<Device>& devices, const std::vector<MeteredDevice>& metered,
                      const LinkSweep& sweep, const LinkSweep& sums,
                      const std::function<void(double)>& progress) {
  const MeasuredLinks links = measure_all(
      static_cast<int>(devices.size()),
      [&](int i, int j) {
        return MeasuredPair{i, j, sample_pair(metered[at(i)], metered[at(j)], sweep)};
      },
      [&] { return sample_all_reduce(metered, sums); }, progress);
  return build_cluster(devices, links, "process");
}

}  // namespace

Cluster measure_links(const LinkOptions& options, const std::function<void(double)>& progress) {
  const std::vector<Device> devices = make_devices(options);
  std::vector<MeteredDevice> metered;
  for (const Device& device : devices) metered.push_back({at::kCPU, device.cores});
  LinkSweep sums = options.sweep;
  sums.largest = std::max(sums.largest, options.largest_sum);
  return measure_local(devices, metered, options.sweep, sums, progress);
}

Cluster measure_cuda_links(std::span<const int> devices, const LinkSweep& sweep,
                           const std::function<void(double)>& progress) {
  const std::size_t count = devices.size();
  if (count < 2) {
    throw Error(ErrorKind::usage, "devices = " + std::to_string(count) +
                                      ": a link needs at least 2; cuda:0,cuda:0 are two workers on one device");
  }
  std::vector<at::Device> places;
  for (const int index : devices) places.push_back(profile::tensor_device(DeviceKind::cuda, index));
  profile::open_devices(places);
  std::vector<MeteredDevice> metered;
  for (const at::Device& place : places) metered.push_back({place});
  const std::vector<Device> described = describe(devices);
  Cluster cluster = measure_local(described, metered, sweep, sweep, progress);
  for (std::size_t i = 0; i < count; ++i)
    for (std::size_t j = i + 1; j < count; ++j)
      cluster.context.emplace("link " + to_text(described[i]) + " " + to_text(described[j]),
                              how(devices[i], devices[j]));
  return cluster;
}

}  // namespace pp::run
