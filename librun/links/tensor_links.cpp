#include "librun/links/tensor_links.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <string>
#include <utility>

#include "libprofile/device/compute_device.h"
#include "libprofile/device/machine.h"
#include "librun/links/ping_pong.h"
#include "librun/transport/collectives.h"

namespace pp::run {

namespace {

std::vector<double> hand_over_times(const std::vector<at::Device>& devices, Bytes size,
                                    const LinkSweep& sweep) {
  Team team(static_cast<int>(devices.size()),
            [&](int me) { profile::enter_device(devices[static_cast<std::size_t>(me)], /*threads=*/1); });
  const auto make = [&](int me, int i) {
    const at::Device& device = devices[static_cast<std::size_t>(me)];
    at::Tensor tensor = at::full({size.value}, i % 100, at::TensorOptions(device).dtype(at::kByte));
    profile::wait_for(device);
    return tensor;
  };
  const auto take = [&](int me, at::Tensor tensor) {
    const at::Device& device = devices[static_cast<std::size_t>(me)];
    const at::Tensor here = profile::brought_to(device, std::move(tensor));
    profile::wait_for(device);
  };
  return play_ping_pong<at::Tensor>(team, sweep, make, take);
}

// As workers enter theirs.
void enter(const SummingDevice& one) {
  profile::pin_thread(one.cores);
  profile::enter_device(one.device, std::max(1, static_cast<int>(one.cores.size())));
}

std::vector<double> reduce_times(const std::vector<SummingDevice>& devices, Bytes size,
                                 const LinkSweep& sweep) {
  const std::int64_t length = size.value / static_cast<std::int64_t>(sizeof(float));
  Group members;
  for (std::size_t w = 0; w < devices.size(); ++w) members.push_back(WorkerId{static_cast<int>(w)});
  Team team(static_cast<int>(devices.size()), [&](int me) { enter(devices[static_cast<std::size_t>(me)]); });
  Barrier barrier(team.coordinator(), devices.size());
  const auto collectives = make_in_process_collectives(team.coordinator(), {members});
  std::vector<double> times;
  team.run([&](int me) {
    const at::Device& device = devices[static_cast<std::size_t>(me)].device;
    const at::Tensor mine = at::empty({length}, at::TensorOptions(device));
    for (int i = 0; i < sweep.warm_up + sweep.repetitions; ++i) {
      mine.fill_(1);
      profile::wait_for(device);
      barrier.arrive_and_wait(WorkerId{me}, "the other threads at the all-reduce");
      const auto start = Coordinator::Clock::now();
      collectives->sum(0, WorkerId{me}, mine);
      if (me == 0 && i >= sweep.warm_up) times.push_back(Seconds(Coordinator::Clock::now() - start).count());
    }
  });
  return times;
}

}  // namespace

std::vector<LinkSample> sample_pair(const at::Device& first, const at::Device& second, const LinkSweep& sweep) {
  std::vector<LinkSample> samples;
  for (const Bytes size : sizes_of(sweep))
    samples.push_back(summarise(size, hand_over_times({first, second}, size, sweep)));
  return samples;
}

std::vector<LinkSample> sample_all_reduce(const std::vector<SummingDevice>& devices, const LinkSweep& sweep) {
  std::vector<LinkSample> samples;
  for (const Bytes size : sizes_of(sweep))
    samples.push_back(summarise(size, reduce_times(devices, size, sweep)));
  return samples;
}

}  // namespace pp::run
