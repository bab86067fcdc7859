// Memory of GPUs of several ranks, for the meter of links between ranks.
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "libprofile/core/error.h"
#include "libprofile/device/compute_device.h"
#include "libprofile/device/cuda_devices.h"
#include "librun/links/rank_links.h"
#include "librun/threads/coordinator.h"
#include "librun/transport/backends.h"
#include "librun/transport/device_group.h"

namespace pp::run {

namespace {

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
