// What entering a CUDA device sets for the process.
#include <ATen/Context.h>

#include "libprofile/device/compute_device.h"
#include "tests/support/torch_test.h"

#include "tests/support/gpu.h"

namespace gpu_settings_test {

using namespace pp::profile;

TEST_SUITE("gpu/libprofile/device/settings") {
  TEST_CASE("float32 is computed in float32, and by deterministic algorithms") {
    PP_NEEDS_CUDA(1);
    pp::test::on_own_thread([] {
      enter_device(tensor_device(pp::DeviceKind::cuda, 0), 1);
      CHECK_FALSE(at::globalContext().allowTF32CuDNN());
      CHECK_FALSE(at::globalContext().allowTF32CuBLAS());
      CHECK(at::globalContext().deterministicCuDNN());
      CHECK(at::globalContext().deterministicAlgorithms());
      CHECK_FALSE(at::globalContext().deterministicAlgorithmsWarnOnly());
    });
  }
}

}  // namespace gpu_settings_test
