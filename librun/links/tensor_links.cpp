#include "librun/links/tensor_links.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "libprofile/device/compute_device.h"
#include "libprofile/device/machine.h"
#include "librun/links/ping_pong.h"
#include "librun/transport/collectives.h"

namespace pp::run {

namespace {

// As workers enter theirs.
void enter(const MeteredDevice& one, int threads) {
  profile::pin_thread(one.cores);
  profile::enter_device(one.device, threads);
}

// One value of every cache line: the line is what travels.
void read_lines(const at::Tensor& tensor) {
  constexpr std::int64_t kLine = 64;
  const auto* const bytes = tensor.const_data_ptr<std::uint8_t>();
  unsigned sum = 0;
  for (std::int64_t i = 0; i < tensor.numel(); i += kLine) sum += bytes[i];
  volatile unsigned keep = sum;  // the reads must not be optimised away
  static_cast<void>(keep);
}

std::vector<double> hand_over_times(const std::array<MeteredDevice, 2>& devices, Bytes size,
                                    const LinkSweep& sweep) {
  std::array<at::Tensor, 2> tensors;
  Team team(2, [&](int me) { enter(devices[static_cast<std::size_t>(me)], /*threads=*/1); });
  // Fresh bytes each time, written on this core or device, as a layer writes its output.
  const auto make = [&](int me, int i) {
    const at::Device& device = devices[static_cast<std::size_t>(me)].device;
    at::Tensor& mine = tensors[static_cast<std::size_t>(me)];
    if (!mine.defined()) mine = at::empty({size.value}, at::TensorOptions(device).dtype(at::kByte));
    mine.fill_(i % 100);
    profile::wait_for(device);
    return mine;
  };
  const auto take = [&](int me, at::Tensor tensor) {
    const at::Device& device = devices[static_cast<std::size_t>(me)].device;
    const at::Tensor here = profile::brought_to(device, std::move(tensor));
    profile::wait_for(device);
    if (device.is_cpu()) read_lines(here);
  };
  return play_ping_pong<at::Tensor>(team, sweep, make, take);
}

std::vector<double> reduce_times(const std::vector<MeteredDevice>& devices, Bytes size,
                                 const LinkSweep& sweep) {
  const std::int64_t length = size.value / static_cast<std::int64_t>(sizeof(float));
  Group members;
  for (std::size_t w = 0; w < devices.size(); ++w) members.push_back(WorkerId{static_cast<int>(w)});
  Team team(static_cast<int>(devices.size()), [&](int me) {
    const MeteredDevice& one = devices[static_cast<std::size_t>(me)];
    enter(one, std::max(1, static_cast<int>(one.cores.size())));
  });
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

std::vector<LinkSample> sample_pair(const MeteredDevice& first, const MeteredDevice& second,
                                    const LinkSweep& sweep) {
  std::vector<LinkSample> samples;
  for (const Bytes size : sizes_of(sweep))
    samples.push_back(summarise(size, hand_over_times({first, second}, size, sweep)));
  return samples;
}

std::vector<LinkSample> sample_all_reduce(const std::vector<MeteredDevice>& devices, const LinkSweep& sweep) {
  std::vector<LinkSample> samples;
  for (const Bytes size : sizes_of(sweep))
    samples.push_back(summarise(size, reduce_times(devices, size, sweep)));
  return samples;
}

}  // namespace pp::run
