// What swapping is made of: memory that comes and goes under a tensor, copies beside the worker's own work,
// what a task leaves for a later one.
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "libprofile/device/process.h"
#include "librun/stage/host_memory.h"
#include "librun/swap/residency.h"
#include "librun/swap/swapper.h"
#include "tests/support/torch_test.h"

namespace swap_test {

using namespace pp;

TEST_SUITE("librun/swap") {
  TEST_CASE("memory that is taken away is charged to nobody, and what comes back is seen by views") {
    profile::prepare_process();
    const profile::MemoryAccount device;
    const profile::ChargeMemory charged(device);
    const at::Tensor whole = at::full({100}, 3.0), part = whole.narrow(0, 10, 20);
    CHECK(device.live() == Bytes(400));
    run::set_memory(whole, false);
    CHECK(device.live() == Bytes(0));
    run::set_memory(whole, true);
    run::set_memory(whole, true);  // no more of it
    CHECK(device.live() == Bytes(400));
    whole.fill_(5);
    CHECK(part.sum().item<double>() == 100);
  }

  TEST_CASE("a copy on the host is charged to the host and keeps its strides") {
    profile::prepare_process();
    const profile::MemoryAccount device, host;
    const profile::ChargeMemory charged(device);
    const at::Tensor tensor = at::zeros({4, 6}).t();
    const Bytes before = device.live();
    const at::Tensor copy = run::copied_to_host(tensor, host);
    CHECK(host.live() == Bytes(96));
    CHECK(device.live() == before);
    CHECK(copy.strides() == tensor.strides());
    const at::Tensor back = run::copied_to_device(copy, at::kCPU);
    CHECK(back.data_ptr() != copy.data_ptr());
    CHECK(device.live() == before + Bytes(96));
  }

  TEST_CASE("copies go on while their worker does something else, one after the other") {
    profile::prepare_process();
    run::Coordinator coordinator(1);
    run::Copier copier(coordinator, WorkerId{0}, at::kCPU);
    const at::Tensor from = at::full({1000}, 2.0), middle = at::zeros({1000}), to = at::zeros({1000});
    std::atomic<int> done = 0;
    copier.begin({{middle, from}}, [&](Seconds) { ++done; });
    const run::Copier::Ticket last = copier.begin({{to, middle}}, [&](Seconds) { ++done; });
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (done < 2 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    CHECK(done == 2);  // nobody has waited
    copier.await(last);
    CHECK(to.sum().item<double>() == 2000);
  }

  TEST_CASE("what a task leaves is on the device until the task is over, then on the host") {
    profile::prepare_process();
    const profile::MemoryAccount device, host;
    const profile::ChargeMemory charged(device);
    run::Shelf shelf;
    shelf.put({0, false, 1}, at::full({100}, 1.0));
    shelf.put({0, false, 2}, at::full({100}, 2.0));
    CHECK_FALSE(shelf.take({0, false, 1}, at::kCPU).on_host.defined());  // by an operation of the same task
    shelf.to_host(host);
    CHECK(device.live() == Bytes(0));
    CHECK(host.live() == Bytes(400));
    const run::Shelf::Item item = shelf.take({0, false, 2}, at::kCPU);
    CHECK(item.on_host.defined());
    CHECK(item.tensor.sum().item<double>() == 200);
    CHECK(device.live() == Bytes(400));
  }

  TEST_CASE("an evaluation loads what its forwards need and nothing else") {
    // The second L0 is for R and B alone.
    const auto part = [](const char* text) {
      return plan::to_text(run::forward_part(plan::parse_program(text)));
    };
    CHECK(part("L0 F0.0 F0.1 E0 L1 F1.0 B1.0 F1.1 B1.1 U1 E1 L0 R0.0 B0.0 R0.1 B0.1 U0 E0") ==
          "L0 F0.0 F0.1 E0 L1 F1.0 F1.1 E1");
    CHECK(part("L0 L1 F0.0 E0 L0 F1.0 B1.0 U1 E1 R0.0 B0.0 U0 E0") == "L0 L1 F0.0 E0 F1.0 E1");
  }
}

}  // namespace swap_test
