// What a call of NCCL costs the host of a worker: `bench_nccl [cuda:K]`. The communicator has one member, which
// sends to itself. For each size the seconds until a send with its receive is handed over, and until a sum is;
// then the seconds of both on the device. Medians.
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <string>

#include "libprofile/device/compute_device.h"
#include "libprofile/device/process.h"
#include "librun/transport/device_group.h"
#include "tests/lab/bench/measure.h"

namespace {

using namespace pp;
using Clock = std::chrono::steady_clock;

constexpr int kCalls = 400, kWarm = 20;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

struct Cost {
  double host = 0, whole = 0;
};

// The device is idle when a call begins.
Cost cost_of(const at::Device& device, const std::function<void()>& call) {
  bench::Sample host, whole;
  for (int i = 0; i < kWarm + kCalls; ++i) {
    profile::wait_for(device);
    const Clock::time_point begin = Clock::now();
    call();
    const double handed_over = seconds_since(begin);
    profile::wait_for(device);
    if (i < kWarm) continue;
    host.values.push_back(handed_over);
    whole.values.push_back(seconds_since(begin));
  }
  return {host.median(), whole.median()};
}

}  // namespace

int main(int count, char** arguments) {
  profile::prepare_process();
  const at::Device device(count > 1 ? arguments[1] : "cuda:0");
  profile::enter_device(device, 1);
  const std::unique_ptr<run::DeviceGroup> group = run::join_device_group(run::make_group_key(), 0, 1, device);
  std::puts("bytes, us of the host for a send and receive, for a sum; us until they are done");
  for (std::int64_t bytes = 4 << 10; bytes <= 64 << 20; bytes *= 16) {
    const at::Tensor sent = at::ones({bytes / 4}, at::TensorOptions(device).dtype(at::kFloat));
    const at::Tensor received = at::ones_like(sent);
    const Cost message = cost_of(device, [&] {
      group->together([&] {
        group->send(0, sent);
        group->receive(0, received);
      });
      group->mark()->hold_back();
    });
    const Cost sum = cost_of(device, [&] {
      group->sum(sent);
      group->mark()->hold_back();
    });
    std::printf("%lld %.1f %.1f %.1f %.1f\n", static_cast<long long>(bytes), 1e6 * message.host, 1e6 * sum.host,
                1e6 * message.whole, 1e6 * sum.whole);
  }
}
