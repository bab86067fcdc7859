#include "librun/links/device_links.h"

#include <algorithm>
#include <string>

#include "libprofile/core/error.h"
#include "libprofile/device/compute_device.h"
#include "libprofile/device/cuda_devices.h"
#include "librun/links/link_levels.h"
#include "librun/links/tensor_links.h"

namespace pp::run {

namespace {

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

}  // namespace

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
  const std::vector<Device> described = describe(devices);

  std::vector<MeasuredPair> pairs;
  Context links;
  const double measurements =
      static_cast<double>(count * (count - 1) / 2 + 1);  // the pairs, and the all-reduce
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t j = i + 1; j < count; ++j) {
      pairs.push_back({static_cast<int>(i), static_cast<int>(j), sample_pair(places[i], places[j], sweep)});
      links["link " + to_text(described[i]) + " " + to_text(described[j])] = how(devices[i], devices[j]);
      if (progress) progress(static_cast<double>(pairs.size()) / measurements);
    }
  }
  Cluster cluster = build_cluster(described, pairs, "process");
  cluster.context.merge(links);
  std::vector<SummingDevice> summing;
  for (const at::Device& place : places) summing.push_back({place});
  add_all_reduce(cluster, sample_all_reduce(summing, sweep));
  if (progress) progress(1.0);
  return cluster;
}

}  // namespace pp::run
