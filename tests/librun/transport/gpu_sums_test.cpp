// Sums over replicas on CUDA devices of one process.
#include <ATen/TensorOperators.h>
#include <ATen/ops/randn.h>
#include <ATen/record_function.h>

#include <memory>
#include <string_view>
#include <thread>
#include <vector>

#include "libprofile/device/compute_device.h"
#include "librun/transport/collectives.h"
#include "tests/support/torch_test.h"

#include "tests/support/gpu.h"

namespace gpu_sums_test {

using namespace pp;

namespace {

/// Where the calling thread has added tensors in place.
thread_local std::vector<at::Device> added_here;

std::unique_ptr<at::ObserverContext> note_addition(const at::RecordFunction& called) {
  if (std::string_view(called.name()) == "aten::add_")
    added_here.push_back(called.inputs().front().toTensor().device());
  return nullptr;
}

}  // namespace

TEST_SUITE("gpu/librun/transport/sums") {
  // Each of two members has half of the elements, and adds once.
  TEST_CASE("every device adds the slice of its replica, in the order of the replicas") {
    PP_NEEDS_CUDA(2);
    const std::vector<at::Device> devices{profile::tensor_device(DeviceKind::cuda, 0),
                                          profile::tensor_device(DeviceKind::cuda, 1)};
    profile::open_devices(devices);
    const std::vector<at::Tensor> values{at::randn({1001}), at::randn({1001})};
    std::vector<at::Tensor> sums(2);
    std::vector<std::vector<at::Device>> added_on(2);
    run::Coordinator coordinator(2);
    const auto collectives = run::make_in_process_collectives(coordinator, {{WorkerId{0}, WorkerId{1}}});
    std::vector<std::thread> members;
    for (int w = 0; w < 2; ++w) {
      members.emplace_back([&, w] {
        const auto i = static_cast<std::size_t>(w);
        profile::enter_device(devices[i], 1);
        const at::Tensor mine = values[i].to(devices[i]);
        profile::wait_for(devices[i]);
        const at::CallbackHandle noting =
            at::addThreadLocalCallback(at::RecordFunctionCallback(&note_addition).needsInputs(true));
        collectives->sum(0, WorkerId{w}, mine);
        at::removeCallback(noting);
        added_on[i] = added_here;
        sums[i] = mine.cpu();
      });
    }
    for (std::thread& member : members) member.join();
    for (std::size_t i = 0; i < 2; ++i) {
      CHECK(sums[i].equal(values[0] + values[1]));
      CHECK(added_on[i] == std::vector{devices[i]});
    }
  }
}

}  // namespace gpu_sums_test
