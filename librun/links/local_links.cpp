#include "librun/links/local_links.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "libprofile/core/error.h"
#include "libprofile/device/compute_device.h"
#include "libprofile/device/cuda_devices.h"
#include "libprofile/device/machine.h"
#include "librun/links/link_levels.h"
#include "librun/links/ping_pong.h"
#include "librun/links/rank_links.h"
#include "librun/links/tensor_links.h"
#include "librun/threads/coordinator.h"
#include "librun/transport/backends.h"
#include "librun/transport/device_group.h"

namespace pp::run {

namespace {

// One value of every cache line: the line is what travels.
std::uint64_t read_lines(const std::vector<std::uint64_t>& buffer) {
  constexpr std::size_t kPerLine = 64 / sizeof(std::uint64_t);
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < buffer.size(); i += kPerLine) sum += buffer[i];
  return sum;
}

std::vector<double> hand_over_times(const Cores& first, const Cores& second, Bytes size,
                                    const LinkSweep& sweep) {
  using Buffer = std::vector<std::uint64_t>;
  std::array<std::shared_ptr<Buffer>, 2> buffers;
  Team team(2, [&](int me) { profile::pin_thread(me == 0 ? first : second); });
  // Fresh bytes each time, written on this core, as a layer writes its output.
  const auto make = [&](int me, int i) -> std::shared_ptr<const Buffer> {
    std::shared_ptr<Buffer>& mine = buffers[static_cast<std::size_t>(me)];
    if (!mine) mine = std::make_shared<Buffer>(static_cast<std::size_t>((size.value + 7) / 8));
    std::ranges::fill(*mine, static_cast<std::uint64_t>(i));
    return mine;
  };
  const auto take = [](int /*me*/, const std::shared_ptr<const Buffer>& bytes) {
    volatile std::uint64_t keep = read_lines(*bytes);  // the reads must not be optimised away
    static_cast<void>(keep);
  };
  return play_ping_pong<std::shared_ptr<const Buffer>>(team, sweep, make, take);
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

class GroupMedium final : public LinkMedium {
 public:
  GroupMedium(std::shared_ptr<DeviceGroup> group, Device device)
      : group_(std::move(group)), device_(std::move(device)) {}

  void set_size(Bytes size) override {
    values_ = at::zeros({size.value / static_cast<std::int64_t>(sizeof(float))},
                        at::TensorOptions(at::kFloat).device(group_->device()));
  }
  void send(int to) override {
    group_->send(to, values_);
    wait();
  }
  void receive(int from) override {
    group_->receive(from, values_);
    wait();
  }
  void all_reduce() override {
    group_->sum(values_);
    wait();
  }
  Device device() const override { return device_; }

 private:
  void wait() {
    const auto mark = group_->mark();
    for (int asked = 0; !mark->done(); ++asked) Coordinator::pause(asked);
  }

  std::shared_ptr<DeviceGroup> group_;
  Device device_;
  at::Tensor values_;
};

// Ranks on this host before this one.
std::size_t place_on_host(Peers& peers) {
  const std::vector<std::string> names = gather(peers, peers.host());
  return static_cast<std::size_t>(std::count(names.begin(), names.begin() + peers.rank(), peers.host()));
}

void require_own_devices(Peers& peers, const at::Device& device) {
  const std::vector<std::string> identities = gather(peers, profile::device_identity(device));
  for (std::size_t r = 0; r < identities.size(); ++r) {
    const auto same =
        std::find(identities.begin(), identities.begin() + static_cast<std::ptrdiff_t>(r), identities[r]);
    if (same == identities.begin() + static_cast<std::ptrdiff_t>(r)) continue;
    throw Error(ErrorKind::usage, "ranks " + std::to_string(same - identities.begin()) + " and " +
                                      std::to_string(r) +
                                      " have the same GPU, NCCL wants one for each rank; name as many with "
                                      "--devices cuda:0,cuda:1 as a host has ranks");
  }
}

}  // namespace

std::vector<LinkSample> sample_pair(const Cores& first, const Cores& second, const LinkSweep& sweep) {
  std::vector<LinkSample> samples;
  for (const Bytes size : sizes_of(sweep))
    samples.push_back(summarise(size, hand_over_times(first, second, size, sweep)));
  return samples;
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

std::unique_ptr<LinkMedium> make_group_medium(std::shared_ptr<DeviceGroup> group, Device device) {
  return std::make_unique<GroupMedium>(std::move(group), std::move(device));
}

std::unique_ptr<LinkMedium> make_gpu_medium(Peers& peers, std::span<const int> devices) {
  if (nccl_library().empty())
    throw Error(ErrorKind::usage,
                "this build has no NCCL; leave --devices out to measure between hosts' memories");
  Device own;
  own.kind = DeviceKind::cuda;
  own.index = devices[place_on_host(peers) % devices.size()];
  own.memory = profile::cuda_device_memory(own.index);
  const at::Device device = profile::tensor_device(own.kind, own.index);
  profile::open_devices(std::vector{device});
  profile::enter_device(device, /*threads=*/1);
  require_own_devices(peers, device);
  const std::string key = gather(peers, peers.rank() == 0 ? make_group_key() : "").front();
  return make_group_medium(join_device_group(key, peers.rank(), peers.size(), device), own);
}

}  // namespace pp::run
