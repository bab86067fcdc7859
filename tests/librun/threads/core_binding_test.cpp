#include "librun/threads/threads.h"

#include <numeric>
#include <utility>
#include <vector>

#include "libprofile/core/error.h"
#include "tests/support/doctest.h"

namespace core_binding_test {

using namespace pp;
using namespace pp::run;

namespace {

Device cpu(std::vector<int> cores) {
  Device device;
  device.cores = std::move(cores);
  return device;
}

}  // namespace

TEST_SUITE("librun/threads/core_binding") {
  TEST_CASE("devices without cores get free cores in order") {
    const std::vector<int> allowed{2, 3, 5};
    const std::vector<Device> devices{cpu({}), cpu({2}), cpu({})};
    const CoreBinding binding = bind_cores(devices, allowed);
    CHECK(binding.cores == std::vector<std::vector<int>>{{3}, {2}, {5}});
    CHECK(binding.threads == std::vector<int>{1, 1, 1});
    CHECK(binding.warnings.empty());
  }

  TEST_CASE("free cores are taken from the front of those allowed, in whatever order they stand") {
    const std::vector<int> allowed{0, 2, 1, 3};  // 1 shares a core with 0, 3 with 2
    const std::vector<Device> devices{cpu({}), cpu({}), cpu({})};
    CHECK(bind_cores(devices, allowed).cores == std::vector<std::vector<int>>{{0}, {2}, {1}});
  }

  TEST_CASE("an operation has a thread per core of its device") {
    const std::vector<int> allowed{0, 1, 2, 3};
    const std::vector<Device> devices{cpu({0, 1, 2}), cpu({})};
    CHECK(bind_cores(devices, allowed).threads == std::vector<int>{3, 1});
  }

  TEST_CASE("CUDA devices take no cores, their threads share the machine's") {
    const std::vector<int> allowed{2, 3};
    Device gpu;
    gpu.kind = DeviceKind::cuda;
    const std::vector<Device> devices{gpu, cpu({}), gpu};
    const CoreBinding binding = bind_cores(devices, allowed);
    CHECK(binding.cores == std::vector<std::vector<int>>{{}, {2}, {}});
    CHECK(binding.threads == std::vector<int>{1, 1, 1});
    CHECK(binding.warnings.empty());
    std::vector<int> many(9);
    std::iota(many.begin(), many.end(), 0);
    CHECK(bind_cores(std::vector<Device>{gpu, gpu}, many).threads == std::vector<int>{4, 4});
  }

  TEST_CASE("more devices than cores share them, with a warning") {
    const std::vector<int> allowed{0, 1};
    const std::vector<Device> devices{cpu({}), cpu({}), cpu({})};
    const CoreBinding binding = bind_cores(devices, allowed);
    CHECK(binding.cores == std::vector<std::vector<int>>{{0}, {1}, {0}});
    REQUIRE(binding.warnings.size() == 1);
    CHECK(binding.warnings[0] ==
          "core 0 is shared by 2 devices: measured times will not match the prediction; use at most 2 devices "
          "of one "
          "core on this machine");
  }

  TEST_CASE("a core that is not there is refused") {
    const std::vector<int> allowed{0, 1};
    const std::vector<Device> devices{cpu({7})};
    CHECK_THROWS_WITH_AS(
        bind_cores(devices, allowed),
        "device cpu:0: core 7 is not available, this process may use 0,1; plan with devices that leave "
        "their cores open (--devices N)",
        Error);
  }
}

}  // namespace core_binding_test
