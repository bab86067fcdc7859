#include "librun/links/gpu_medium.h"

#include <ATen/ops/zeros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "libprofile/core/error.h"
#include "libprofile/device/compute_device.h"
#include "libprofile/device/cuda_devices.h"
#include "librun/transport/coordinator.h"

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

// What a rank says, in as many bytes as everybody's, for all: by way of rank 0.
using Text = std::array<char, 256>;
std::vector<Text> everybodys(Ranks& ranks, const std::string& mine) {
  std::vector<Text> all(static_cast<std::size_t>(ranks.size()));
  Text& own = all[static_cast<std::size_t>(ranks.rank())];
  std::copy_n(mine.begin(), std::min(mine.size(), own.size() - 1), own.begin());
  const auto bytes = std::as_writable_bytes(std::span(all));
  if (ranks.rank() != 0) {
    ranks.send(0, std::as_bytes(std::span(own)));
    ranks.receive(0, bytes);
    return all;
  }
  for (int r = 1; r < ranks.size(); ++r)
    ranks.receive(r, std::as_writable_bytes(std::span(all[static_cast<std::size_t>(r)])));
  for (int r = 1; r < ranks.size(); ++r) ranks.send(r, bytes);
  return all;
}

// Ranks on this host before this one.
std::size_t place_on_host(Ranks& ranks) {
  Text name{};
  gethostname(name.data(), name.size() - 1);
  const std::vector<Text> names = everybodys(ranks, name.data());
  return static_cast<std::size_t>(std::count(names.begin(), names.begin() + ranks.rank(), name));
}

void require_own_devices(Ranks& ranks, const at::Device& device) {
  const std::vector<Text> identities = everybodys(ranks, profile::device_identity(device));
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

std::string key_of_all(Ranks& ranks) {
  std::string key = ranks.rank() == 0 ? make_group_key() : "";
  std::size_t size = key.size();
  const auto number = std::as_writable_bytes(std::span(&size, 1));
  if (ranks.rank() != 0) {
    ranks.receive(0, number);
    key.resize(size);
    ranks.receive(0, std::as_writable_bytes(std::span(key)));
    return key;
  }
  for (int r = 1; r < ranks.size(); ++r) {
    ranks.send(r, number);
    ranks.send(r, std::as_bytes(std::span(key)));
  }
  return key;
}

}  // namespace

std::unique_ptr<LinkMedium> make_group_medium(std::shared_ptr<DeviceGroup> group, Device device) {
  return std::make_unique<GroupMedium>(std::move(group), std::move(device));
}

std::unique_ptr<LinkMedium> make_gpu_medium(Ranks& ranks, std::span<const int> devices) {
  if (nccl_library().empty())
    throw Error(ErrorKind::usage,
                "this build has no NCCL; leave --devices out to measure between hosts' memories");
  Device own;
  own.kind = DeviceKind::cuda;
  own.index = devices[place_on_host(ranks) % devices.size()];
  own.memory = profile::cuda_device_memory(own.index);
  const at::Device device = profile::tensor_device(own.kind, own.index);
  profile::open_devices(std::vector{device});
  profile::enter_device(device, /*threads=*/1);
  require_own_devices(ranks, device);
  return make_group_medium(join_device_group(key_of_all(ranks), ranks.rank(), ranks.size(), device), own);
}

}  // namespace pp::run
