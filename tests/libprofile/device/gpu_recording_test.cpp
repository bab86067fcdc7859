// Work that is taken down on a CUDA device and handed over again.
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>

#include <stdexcept>

#include "libprofile/device/compute_device.h"
#include "libprofile/device/queued_work.h"
#include "tests/support/torch_test.h"

#include "tests/support/gpu.h"

namespace gpu_recording_test {

using namespace pp;
using namespace pp::profile;

namespace {

const at::Device kDevice(at::kCUDA, 0);

at::Tensor numbers(double value) { return at::full({4}, value, at::TensorOptions(kDevice)); }
double first(const at::Tensor& tensor) { return tensor[0].item<double>(); }

}  // namespace

TEST_SUITE("gpu/libprofile/device/recording") {
  TEST_CASE("what is recorded is done when it is replayed, on the values of then") {
    PP_NEEDS_CUDA(1);
    pp::test::on_own_thread([] {
      enter_device(kDevice, 1);
      const at::Tensor in = numbers(3), sum = numbers(10);
      static_cast<void>((in * 2).add(1));  // libraries have what they keep
      const std::unique_ptr<Recording> recording = make_recording(kDevice);
      at::Tensor twice, out;
      recording->record([&] { twice = in * 2; });
      recording->record([&] {
        out = twice + 1;
        sum.add_(out);
      });
      CHECK(first(sum) == 10);
      for (const double value : {3.0, 5.0}) {
        in.fill_(value);
        recording->replay(0);
        recording->replay(1);
      }
      CHECK(first(out) == 2 * 5 + 1);
      CHECK(first(sum) == 10 + (2 * 3 + 1) + (2 * 5 + 1));
    });
  }

  TEST_CASE("what waits for the device cannot be recorded; what throws is not") {
    PP_NEEDS_CUDA(1);
    pp::test::on_own_thread([] {
      enter_device(kDevice, 1);
      const at::Tensor in = numbers(3);
      CHECK_THROWS_AS(make_recording(kDevice)->record([&] { static_cast<void>((in + 1)[0].item<double>()); }),
                      c10::Error);
      CHECK_THROWS_AS(make_recording(kDevice)->record([&] { throw std::runtime_error("lost"); }),
                      std::runtime_error);
      CHECK(first(in * 2) == 6);  // the stream goes on
    });
  }
}

}  // namespace gpu_recording_test
